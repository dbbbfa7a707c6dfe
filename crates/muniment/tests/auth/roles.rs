//! The commands on roles.

use super::*;

#[test]
fn roles_are_created_changed_inherited_and_dropped() {
    let server = auth();
    let mut c = root(&server);
    let on = |collection: &str, actions: &str| {
        format!("{{resource: {{db: 'own', collection: '{collection}'}}, actions: {actions}}}")
    };
    let create = |name: &str, privileges: &str, roles: &str| {
        format!("{{createRole: '{name}', privileges: [{privileges}], roles: {roles}}}")
    };
    run(&mut c, "own", &create("low", &on("c", "['find']"), "[]"));
    run(
        &mut c,
        "own",
        &create("mid", &on("d", "['find']"), "['low']"),
    );
    run(
        &mut c,
        "own",
        &create("top", &on("e", "['insert']"), "['mid']"),
    );
    user(&mut c, "u", "['top']");
    let mut u = as_user(&server, "u");
    expect(
        &mut u,
        "own",
        0,
        &[
            "{find: 'c'}",
            "{find: 'd'}",
            "{insert: 'e', documents: [{}]}",
        ],
    );
    expect(
        &mut u,
        "own",
        13,
        &[
            "{find: 'e'}",
            "{find: 'x'}",
            "{insert: 'c', documents: [{}]}",
        ],
    );
    let shown_role = role(&mut c, "own", "{rolesInfo: 'top', showPrivileges: true}");
    let inherited = shown(&shown_role, "inheritedRoles");
    assert!(
        inherited.contains("\"low\"") && inherited.contains("\"mid\""),
        "{inherited}"
    );
    let own = shown(&shown_role, "privileges");
    assert!(own.contains("\"e\"") && !own.contains("\"c\""), "{own}");
    let all = shown(&shown_role, "inheritedPrivileges");
    assert!(all.contains("\"c\"") && all.contains("\"d\""), "{all}");
    assert_eq!(shown(&shown_role, "isBuiltin"), "false");
    expect(&mut c, "own", 51002, &[create("low", "", "[]").as_str()]);
    // A circle.
    expect(
        &mut c,
        "own",
        49,
        &[
            "{grantRolesToRole: 'low', roles: ['top']}",
            "{grantRolesToRole: 'low', roles: ['mid']}",
            "{grantRolesToRole: 'low', roles: ['low']}",
            "{updateRole: 'low', roles: ['top']}",
            "{updateRole: 'low', roles: ['low']}",
        ],
    );
    // Built-in roles, and those that do not exist.
    expect(
        &mut c,
        "own",
        49,
        &[
            "{updateRole: 'read', roles: []}",
            "{dropRole: 'read'}",
            "{grantPrivilegesToRole: 'readWrite', privileges: []}",
            "{revokePrivilegesFromRole: 'dbOwner', privileges: []}",
            "{grantRolesToRole: 'dbAdmin', roles: ['low']}",
            "{revokeRolesFromRole: 'userAdmin', roles: ['low']}",
        ],
    );
    expect(
        &mut c,
        "admin",
        49,
        &["{dropRole: 'root'}", "{updateRole: '__system', roles: []}"],
    );
    expect(
        &mut c,
        "own",
        2,
        &[
            create("read", "", "[]").as_str(),
            create("", "", "[]").as_str(),
        ],
    );
    expect(
        &mut c,
        "own",
        31,
        &[
            "{updateRole: 'nope', roles: []}",
            "{dropRole: 'nope'}",
            "{grantRolesToRole: 'low', roles: ['nope']}",
            "{grantRolesToRole: 'nope', roles: ['low']}",
            "{revokeRolesFromRole: 'nope', roles: ['low']}",
            "{grantPrivilegesToRole: 'nope', privileges: []}",
            "{createRole: 'x', privileges: [], roles: ['nope']}",
        ],
    );
    // Outside of admin a role is about its own database.
    expect(
        &mut c,
        "own",
        49,
        &[
            "{createRole: 'x', privileges: [], roles: [{role: 'read', db: 'other'}]}",
            "{createRole: 'x', privileges: [{resource: {db: 'other', collection: ''}, actions: ['find']}], roles: []}",
            "{createRole: 'x', privileges: [{resource: {cluster: true}, actions: ['shutdown']}], roles: []}",
            "{createRole: 'x', privileges: [{resource: {db: '', collection: ''}, actions: ['find']}], roles: []}",
            "{grantRolesToRole: 'low', roles: [{role: 'read', db: 'other'}]}",
            "{grantPrivilegesToRole: 'low', privileges: [{resource: {anyResource: true}, actions: ['anyAction']}]}",
            "{updateRole: 'low', roles: [{role: 'root', db: 'admin'}]}",
        ],
    );
    expect(
        &mut c,
        "own",
        9,
        &[
            "{createRole: 'x', privileges: [{resource: {db: 'own', collection: ''}, actions: ['nope']}], roles: []}",
            "{createRole: 'x', privileges: [{resource: {}, actions: ['find']}], roles: []}",
        ],
    );
    // Privileges and roles granted and revoked are in force at the next command.
    run(
        &mut c,
        "own",
        &format!(
            "{{grantPrivilegesToRole: 'low', privileges: [{}]}}",
            on("c", "['insert', 'update']")
        ),
    );
    expect(
        &mut u,
        "own",
        0,
        &["{insert: 'c', documents: [{}]}", "{find: 'c'}"],
    );
    run(
        &mut c,
        "own",
        &format!(
            "{{revokePrivilegesFromRole: 'low', privileges: [{}]}}",
            on("c", "['insert']")
        ),
    );
    expect(&mut u, "own", 13, &["{insert: 'c', documents: [{}]}"]);
    expect(&mut u, "own", 0, &["{find: 'c'}"]);
    run(
        &mut c,
        "own",
        &format!(
            "{{updateRole: 'low', privileges: [{}]}}",
            on("f", "['find']")
        ),
    );
    expect(&mut u, "own", 13, &["{find: 'c'}"]);
    expect(&mut u, "own", 0, &["{find: 'f'}"]);
    run(
        &mut c,
        "own",
        "{revokeRolesFromRole: 'mid', roles: ['low']}",
    );
    expect(&mut u, "own", 13, &["{find: 'f'}"]);
    run(&mut c, "own", "{grantRolesToRole: 'mid', roles: ['low']}");
    expect(&mut u, "own", 0, &["{find: 'f'}"]);
    // A role that is dropped is taken away from roles and users.
    run(&mut c, "own", "{dropRole: 'low'}");
    expect(&mut u, "own", 13, &["{find: 'f'}"]);
    assert_eq!(
        shown(&role(&mut c, "own", "{rolesInfo: 'mid'}"), "roles"),
        "[]"
    );
    run(&mut c, "own", "{dropRole: 'top'}");
    let after = users(&mut c, "own", "{usersInfo: 'u'}").remove(0);
    assert_eq!(shown(&after, "roles"), "[]");
    expect(
        &mut u,
        "own",
        13,
        &["{find: 'd'}", "{insert: 'e', documents: [{}]}"],
    );
    // One of the same name later is not the user's.
    run(&mut c, "own", &create("top", &on("c", "['find']"), "[]"));
    expect(&mut u, "own", 13, &["{find: 'c'}"]);
    run(
        &mut c,
        "own",
        "{grantRolesToUser: 'u', roles: ['top', 'mid']}",
    );
    expect(&mut u, "own", 0, &["{find: 'c'}", "{find: 'd'}"]);
    let reply = run(&mut c, "own", "{dropAllRolesFromDatabase: 1}");
    assert_eq!(reply.as_doc().get("n").unwrap().as_i64_exact(), Some(2));
    expect(&mut u, "own", 13, &["{find: 'c'}", "{find: 'd'}"]);
    let after = users(&mut c, "own", "{usersInfo: 'u'}").remove(0);
    assert_eq!(shown(&after, "roles"), "[]");
}
