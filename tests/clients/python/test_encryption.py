"""Client-side field level encryption with a key of the test's own: explicit encryption, the collection of
keys, decryption by the driver, and validators that demand encrypted values."""

import os

import pymongo
import pytest
from bson.codec_options import CodecOptions

pytest.importorskip("pymongocrypt")

from pymongo.encryption import Algorithm, ClientEncryption
from pymongo.encryption_options import AutoEncryptionOpts
from pymongo.errors import EncryptionError, OperationFailure, WriteError

DETERMINISTIC = Algorithm.AEAD_AES_256_CBC_HMAC_SHA_512_Deterministic
RANDOM = Algorithm.AEAD_AES_256_CBC_HMAC_SHA_512_Random
PROVIDERS = {"local": {"key": os.urandom(96)}}


@pytest.fixture
def keys(db):
    vault = db.keys
    vault.create_index(
        "keyAltNames",
        unique=True,
        partialFilterExpression={"keyAltNames": {"$exists": True}},
    )
    with ClientEncryption(PROVIDERS, vault.full_name, db.client, CodecOptions()) as e:
        yield e


def test_values_are_encrypted_found_and_decrypted(keys, db, coll, uri):
    key = keys.create_data_key("local", key_alt_names=["one"])
    name = keys.encrypt("Ann", DETERMINISTIC, key_id=key)
    age = keys.encrypt(41, RANDOM, key_alt_name="one")
    assert keys.encrypt("Ann", DETERMINISTIC, key_id=key) == name
    assert keys.encrypt(41, RANDOM, key_id=key) != age
    coll.insert_one({"_id": 1, "name": name, "age": age})
    coll.create_index("name", unique=True)
    assert coll.find_one({"name": name})["_id"] == 1
    with pytest.raises(pymongo.errors.DuplicateKeyError):
        coll.insert_one({"_id": 2, "name": name})
    assert keys.decrypt(coll.find_one()["age"]) == 41
    # A client that decrypts by itself what it reads.
    options = AutoEncryptionOpts(PROVIDERS, db.keys.full_name, bypass_auto_encryption=True)
    with pymongo.MongoClient(uri, auto_encryption_opts=options) as c:
        assert c[db.name].c.find_one() == {"_id": 1, "name": "Ann", "age": 41}


def test_keys_have_names_and_are_wrapped_anew(keys, db):
    key = keys.create_data_key("local", key_alt_names=["one"])
    with pytest.raises(EncryptionError):
        keys.create_data_key("local", key_alt_names=["one"])
    keys.add_key_alt_name(key, "two")
    assert keys.get_key_by_alt_name("two")["_id"] == key
    assert keys.remove_key_alt_name(key, "one")["keyAltNames"] == ["one", "two"]
    before = db.keys.find_one({"_id": key})["keyMaterial"]
    assert keys.rewrap_many_data_key({}).bulk_write_result.modified_count == 1
    assert db.keys.find_one({"_id": key})["keyMaterial"] != before
    assert keys.delete_key(key).deleted_count == 1


def test_a_validator_demands_encrypted_values(keys, db):
    key = keys.create_data_key("local")
    encrypt = {"bsonType": "string", "algorithm": RANDOM, "keyId": [key]}
    schema = {"bsonType": "object", "properties": {"name": {"encrypt": encrypt}}}
    coll = db.create_collection("v", validator={"$jsonSchema": schema})
    coll.insert_one({"name": keys.encrypt("Ann", RANDOM, key_id=key)})
    for wrong in [
        "Ann",
        keys.encrypt("Ann", DETERMINISTIC, key_id=key),
        keys.encrypt(1, RANDOM, key_id=key),
    ]:
        with pytest.raises(WriteError) as e:
            coll.insert_one({"name": wrong})
        assert e.value.code == 121


def test_queryable_encryption_is_refused_by_name(db):
    with pytest.raises(OperationFailure, match="encryptedFields"):
        db.create_collection("q", encryptedFields={"fields": []})
