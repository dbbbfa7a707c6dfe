//! The names and times in certificates.

use crate::invalid;
use muniment_value::Result;
use std::fmt::Write;
use std::time::{Duration, SystemTime};
use x509_cert::attr::AttributeTypeAndValue;
use x509_cert::der::asn1::{
    Any, BmpString, Ia5StringRef, ObjectIdentifier, PrintableStringRef, TeletexStringRef,
    Utf8StringRef,
};
use x509_cert::der::{Decode, Encode, Tag, Tagged};
use x509_cert::name::Name;

/// The short names of attributes, as OpenSSL prints them.
const NAMES: &[(&str, &str)] = &[
    ("0.9.2342.19200300.100.1.1", "UID"),
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("1.2.840.113549.1.9.1", "emailAddress"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("2.5.4.12", "title"),
    ("2.5.4.13", "description"),
    ("2.5.4.17", "postalCode"),
    ("2.5.4.3", "CN"),
    ("2.5.4.4", "SN"),
    ("2.5.4.42", "GN"),
    ("2.5.4.43", "initials"),
    ("2.5.4.46", "dnQualifier"),
    ("2.5.4.5", "serialNumber"),
    ("2.5.4.6", "C"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.9", "street"),
];

/// The attributes that all members of a cluster have in common: organisation, unit and domain component.
const OF_MEMBERS: [&str; 3] = ["O", "OU", "DC"];

/// What is read of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// The name of its owner as RFC 2253 writes it, which is the name of its user.
    pub subject: String,
    /// What members of a cluster know each other by.
    pub membership: Membership,
    /// When it expires.
    pub expires: SystemTime,
}

/// The organisations, units and domain components of a certificate's owner, sorted: each with whether it is a
/// text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Membership(Vec<(&'static str, bool, String)>);

impl Membership {
    /// Whether two certificates are of members of the same cluster. One without any of the attributes is of
    /// none.
    pub fn is_of(&self, other: &Membership) -> bool {
        !self.0.is_empty() && self == other
    }

    /// Whether the certificate has any of the attributes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Certificate {
    /// Reads a certificate.
    ///
    /// # Errors
    /// 140 if it is malformed.
    pub fn parse(der: &[u8]) -> Result<Certificate> {
        let bad = |e| invalid(format!("a certificate cannot be read: {e}"));
        let certificate = x509_cert::Certificate::from_der(der).map_err(bad)?;
        let tbs = certificate.tbs_certificate();
        let expires = tbs.validity().not_after.to_unix_duration();
        Ok(Certificate {
            subject: rfc2253(tbs.subject())?,
            membership: membership(tbs.subject())?,
            expires: SystemTime::UNIX_EPOCH + expires,
        })
    }

    /// Whether it has expired.
    pub fn is_expired(&self) -> bool {
        self.expires_within(Duration::ZERO)
    }

    /// Whether it expires within this time, or has.
    pub fn expires_within(&self, time: Duration) -> bool {
        self.expires <= SystemTime::now() + time
    }
}

fn short(oid: &ObjectIdentifier) -> Option<&'static str> {
    let oid = oid.to_string();
    NAMES.iter().find(|(id, _)| *id == oid).map(|(_, n)| *n)
}

pub(crate) fn membership(name: &Name) -> Result<Membership> {
    let mut all = Vec::new();
    for attribute in name.iter() {
        let kind = short(&attribute.oid).filter(|n| OF_MEMBERS.contains(n));
        if let Some(kind) = kind {
            // A value that is no text counts as well: without it the owner would be another one.
            match text(&attribute.value) {
                Some(text) => all.push((kind, true, text)),
                None => all.push((kind, false, hexadecimal(&attribute.value)?)),
            }
        }
    }
    all.sort();
    Ok(Membership(all))
}

/// A name as RFC 2253 writes it: the last attribute first.
pub(crate) fn rfc2253(name: &Name) -> Result<String> {
    let mut out = String::new();
    let sets: Vec<_> = name.as_ref().iter().collect();
    for (i, set) in sets.into_iter().rev().enumerate() {
        if i > 0 {
            out.push(',');
        }
        // As OpenSSL does, from the last to the first here, too.
        let attributes: Vec<_> = set.as_ref().iter().collect();
        for (i, attribute) in attributes.into_iter().rev().enumerate() {
            if i > 0 {
                out.push('+');
            }
            write_attribute(&mut out, attribute)?;
        }
    }
    Ok(out)
}

fn write_attribute(out: &mut String, attribute: &AttributeTypeAndValue) -> Result<()> {
    match (short(&attribute.oid), text(&attribute.value)) {
        (Some(kind), Some(text)) => {
            let _ = write!(out, "{kind}=");
            escape(out, &text);
        }
        // A type or a value without a text is written as its encoding.
        (kind, _) => {
            match kind {
                Some(kind) => out.push_str(kind),
                None => out.push_str(&attribute.oid.to_string()),
            }
            out.push('=');
            out.push_str(&hexadecimal(&attribute.value)?);
        }
    }
    Ok(())
}

/// The encoding of a value, which no text looks like: a `#` at its beginning is escaped.
fn hexadecimal(value: &Any) -> Result<String> {
    let mut out = String::from("#");
    for byte in value.to_der().map_err(invalid)? {
        let _ = write!(out, "{byte:02X}");
    }
    Ok(out)
}

fn text(value: &Any) -> Option<String> {
    Some(match value.tag() {
        Tag::Utf8String => value.decode_as::<Utf8StringRef<'_>>().ok()?.to_string(),
        Tag::PrintableString => value
            .decode_as::<PrintableStringRef<'_>>()
            .ok()?
            .to_string(),
        Tag::Ia5String => value.decode_as::<Ia5StringRef<'_>>().ok()?.to_string(),
        Tag::TeletexString => value.decode_as::<TeletexStringRef<'_>>().ok()?.to_string(),
        Tag::BmpString => value.decode_as::<BmpString>().ok()?.to_string(),
        _ => return None,
    })
}

/// Writes a value with the escapes of RFC 2253.
fn escape(out: &mut String, text: &str) {
    let last = text.chars().count().saturating_sub(1);
    for (i, c) in text.chars().enumerate() {
        let outer = c == ' ' && (i == 0 || i == last) || c == '#' && i == 0;
        if outer || matches!(c, ',' | '+' | '"' | '\\' | '<' | '>' | ';') {
            out.push('\\');
        }
        if c.is_control() {
            let mut utf8 = [0; 4];
            for byte in c.encode_utf8(&mut utf8).bytes() {
                let _ = write!(out, "\\{byte:02X}");
            }
            continue;
        }
        out.push(c);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, KeyPair};

    fn certificate(names: &[(DnType, &str)]) -> Certificate {
        let mut params = CertificateParams::new(vec!["localhost".to_string()]).unwrap();
        params.distinguished_name = DistinguishedName::new();
        for (kind, text) in names {
            params.distinguished_name.push(kind.clone(), *text);
        }
        let key = KeyPair::generate().unwrap();
        Certificate::parse(params.self_signed(&key).unwrap().der()).unwrap()
    }

    #[test]
    fn subjects_are_written_as_rfc_2253_says() {
        let c = certificate(&[
            (DnType::CountryName, "US"),
            (DnType::OrganizationName, "A, B & \"C\""),
            (DnType::OrganizationalUnitName, " x "),
            (DnType::CommonName, "#client é\u{1}"),
            (DnType::CustomDnType(vec![1, 2, 3]), "v"),
        ]);
        assert_eq!(
            c.subject,
            "1.2.3=#0C0176,CN=\\#client é\\01,OU=\\ x\\ ,O=A\\, B & \\\"C\\\",C=US"
        );
        assert!(!c.expires_within(Duration::from_secs(86_400)));
    }

    /// As `openssl x509 -subject -nameopt RFC2253` writes the owner of a certificate that
    /// `openssl req -x509 -subj /O=c/CN=a+OU=b -multivalue-rdn` has made.
    #[test]
    fn parts_of_several_attributes_are_written_as_openssl_does() {
        // CN=a and OU=b in one set, after O=c.
        let der: &[u8] = b"\x30\x22\x31\x0a\x30\x08\x06\x03\x55\x04\x0a\x0c\x01c\
            \x31\x14\x30\x08\x06\x03\x55\x04\x03\x0c\x01a\x30\x08\x06\x03\x55\x04\x0b\x0c\x01b";
        let name = Name::from_der(der).unwrap();
        assert_eq!(rfc2253(&name).unwrap(), "OU=b+CN=a,O=c");
    }

    #[test]
    fn members_have_organisation_and_unit_in_common() {
        let of = |o, ou, cn| {
            certificate(&[
                (DnType::OrganizationName, o),
                (DnType::OrganizationalUnitName, ou),
                (DnType::CommonName, cn),
            ])
            .membership
        };
        let a = of("M", "db", "one");
        assert!(a.is_of(&of("M", "db", "two")));
        assert!(!a.is_of(&of("M", "clients", "two")));
        // One whose unit is no text that can be read is in another unit than one that has none.
        let of_unit = |value: DnValue| {
            let mut params = CertificateParams::default();
            let owner = &mut params.distinguished_name;
            owner.push(DnType::OrganizationName, "M");
            owner.push(DnType::OrganizationalUnitName, value);
            let key = KeyPair::generate().unwrap();
            params.self_signed(&key).unwrap().der().to_vec()
        };
        let parsed = |der: &[u8]| Certificate::parse(der).unwrap().membership;
        // A letter that T.61 has and ASCII has not.
        let odd = |first: u8| {
            let mut der = of_unit(DnValue::TeletexString("dbdb".try_into().unwrap()));
            let places: Vec<_> = (0..der.len() - 4)
                .filter(|i| &der[*i..*i + 4] == b"dbdb")
                .collect();
            places.iter().for_each(|at| der[*at] = first);
            parsed(&der)
        };
        let alone = certificate(&[(DnType::OrganizationName, "M")]).membership;
        let unit = odd(0xFC);
        assert!(!alone.is_of(&unit) && !unit.is_of(&alone) && !a.is_of(&unit));
        assert!(unit.is_of(&odd(0xFC)) && !unit.is_of(&odd(0xFD)));
        let told = certificate(&[
            (DnType::OrganizationName, "M"),
            (DnType::OrganizationalUnitName, "#1404FC626462"),
        ]);
        assert!(!unit.is_of(&told.membership));
        // The kind of the text does not matter.
        let printable = of_unit(DnValue::PrintableString("db".try_into().unwrap()));
        assert!(a.is_of(&parsed(&printable)));
        let none = certificate(&[(DnType::CommonName, "one")]).membership;
        assert!(!none.is_of(&none));
    }

    #[test]
    fn anything_else_is_no_certificate() {
        assert!(Certificate::parse(b"").is_err());
        assert!(Certificate::parse(&[0x30, 0x82, 0xFF, 0xFF, 0]).is_err());
    }
}
