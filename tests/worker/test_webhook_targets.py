"""Where webhooks may go, and where not, however it is spelt, resolved or redirected."""

import ipaddress
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from onnxbisect_service.outbound import SETTING, Allowed, complaint
from onnxbisect_service.settings import Settings
from onnxbisect_worker.delivering import HttpAnswer, Resolver, TargetRefusedError, UnknownHostError, post, resolved
from support.worker.webhook_receiver import Receiver

#: What leads to this very machine.
LOOPBACK = (
    "127.0.0.1",
    "127.0.0.1.",
    "127.1",
    "127.0.1",
    "0x7f.1",
    "0x7f000001",
    "0x7f.0x0.0x0.0x1",
    "2130706433",
    "0177.0.0.1",
    "017700000001",
    "127。0。0。1",
    "0",
    "0.0.0.0",  # noqa: S104 - nothing listens there
    "localhost",
    "LOCALHOST.",
    "[::1]",
    "[::]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[0:0:0:0:0:ffff:7f00:0001]",
)
#: What a name may lead to.
PRIVATE = (
    "10.0.0.1",
    "100.64.0.1",
    "100.100.100.200",
    "127.8.8.8",
    "168.63.129.16",
    "169.254.169.254",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.192",
    "192.88.99.1",
    "192.168.1.1",
    "198.18.0.1",
    "203.0.113.7",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::127.0.0.1",
    "::ffff:10.0.0.1",
    "64:ff9b::127.0.0.1",
    "64:ff9b::8.8.8.8",
    "64:ff9b:1::1",
    "100::1",
    "2001::1",
    "2001:0:7f00:1::",
    "2001:db8::1",
    "2002:7f00:1::",
    "2002:808:808::",
    "3fff::1",
    "5f00::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fe80::1%1",
    "2606:4700::1%1",
    "fec0::1",
    "ff02::1",
)
PUBLIC = (
    "1.1.1.1",
    "8.8.8.8",
    "100.63.255.255",
    "172.32.0.1",
    "2606:4700:4700::1111",
    "2a00:1450::1",
    "::ffff:1.1.1.1",
)

NOTHING = Allowed()
HERE = Allowed.read(["127.0.0.1"])


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    made.up()
    yield made
    made.down()


def send(url: str, allowed: Allowed = NOTHING, resolve: Resolver = resolved, seconds: float = 20) -> HttpAnswer:
    return post(httpx2.URL(url), {}, b"{}", seconds=seconds, allowed=allowed, resolve=resolve)


def to(*addresses: str) -> Resolver:
    """A name server which says this of every host."""
    return lambda host: addresses


@pytest.mark.parametrize("host", LOOPBACK)
def test_no_spelling_of_this_machine_is_let_through(receiver: Receiver, host: str) -> None:
    url = f"http://{host}:{receiver.port}/"
    assert complaint(url, ()) is not None
    # Not every system's resolver knows every spelling.
    with pytest.raises((TargetRefusedError, UnknownHostError, httpx2.InvalidURL)):
        send(url)
    with pytest.raises((TargetRefusedError, UnknownHostError)):
        send(f"http://ci.example:{receiver.port}/", resolve=lambda _: resolved(host.strip("[]")))
    assert receiver.messages == []


@pytest.mark.parametrize("address", PRIVATE)
def test_no_name_leads_into_private_networks(address: str) -> None:
    with pytest.raises(TargetRefusedError, match=SETTING) as refused:
        send("http://ci.example/", resolve=to(address))
    assert address not in str(refused.value)  # who may enter URLs need not know the network
    host = f"[{address}]" if ":" in address else address
    assert complaint(f"http://{host}/", ()) is not None


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_targets(address: str) -> None:
    assert NOTHING.permits("ci.example", ipaddress.ip_address(address))
    assert complaint(f"https://{f'[{address}]' if ':' in address else address}:8443/x?y=z", ()) is None


@given(st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)))
def test_what_python_knows_not_to_be_global_is_no_target(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    mapped = getattr(address, "ipv4_mapped", None)  # is what it maps
    if mapped is None and (address.is_multicast or address.is_reserved or not address.is_global):
        assert not NOTHING.permits("ci.example", address)


def test_a_name_server_that_changes_its_mind_gains_nothing(receiver: Receiver) -> None:
    answers = iter([["127.0.0.1"], ["127.0.0.3"]])
    asked: list[str] = []

    def resolve(host: str) -> Sequence[str]:
        asked.append(host)
        return next(answers)

    url = f"http://rebinding.example:{receiver.port}/"
    assert send(url, HERE, resolve).status == 204
    assert asked == ["rebinding.example"]  # once: what was checked is what was connected to
    with pytest.raises(TargetRefusedError):
        send(url, HERE, resolve)
    assert len(receiver.messages) == 1


def test_of_several_addresses_only_those_that_are_allowed_are_tried(receiver: Receiver) -> None:
    inside = Receiver(host="127.0.0.2", port=receiver.port)
    inside.up()
    try:
        assert send(f"http://both.example:{receiver.port}/", HERE, to("127.0.0.2", "127.0.0.1")).status == 204
    finally:
        inside.down()
    assert inside.messages == []
    assert len(receiver.messages) == 1


def test_an_address_where_nobody_listens_does_not_keep_the_others_from_being_tried(receiver: Receiver) -> None:
    allowed = Allowed.read(["127.0.0.0/8"])
    assert send(f"http://both.example:{receiver.port}/", allowed, to("127.0.0.9", "127.0.0.1")).status == 204


def test_no_proxy_is_asked(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = Receiver()
    proxy.up()
    try:
        for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        send(receiver.url, HERE)
    finally:
        proxy.down()
    assert proxy.messages == []
    assert [message.path for message in receiver.messages] == ["/hook?a=1"]


@pytest.mark.parametrize(
    ("allow", "host", "address", "permitted"),
    [
        ("ci.local", "ci.local", "10.0.0.1", True),
        ("CI.local.", "ci.LOCAL.", "10.0.0.1", True),
        ("ci.local", "x.ci.local", "10.0.0.1", False),
        ("ci.local", "ci.local.evil.example", "10.0.0.1", False),
        ("*.ci.local", "x.ci.local", "10.0.0.1", True),
        ("*.ci.local", "ci.local", "10.0.0.1", False),
        ("*.ci.local", "xci.local", "10.0.0.1", False),
        ("10.0.0.0/8", "anything", "10.9.9.9", True),
        ("10.0.0.1/8", "anything", "10.9.9.9", True),
        ("10.0.0.0/8", "anything", "::ffff:10.9.9.9", True),
        ("10.0.0.0/8", "anything", "11.0.0.1", True),  # public
        ("10.0.0.0/8", "anything", "192.168.0.1", False),
        ("10.0.0.0/8", "anything", "64:ff9b::10.0.0.1", False),
        ("10.1.2.3", "anything", "10.1.2.3", True),
        ("10.1.2.3", "anything", "10.1.2.4", False),
        ("fd00::/8", "anything", "fd12::1", True),
        ("fd00::/8", "anything", "fe80::1", False),
    ],
)
def test_what_the_administrator_allows(allow: str, host: str, address: str, permitted: bool) -> None:
    allowed = Settings(webhook_allow=f"1.2.3.4, {allow}").webhook_allow  # type: ignore[arg-type]
    assert Allowed.read(allowed).permits(host, ipaddress.ip_address(address)) == permitted


def test_a_private_host_that_is_allowed_may_be_entered() -> None:
    assert complaint("http://127.1/", ["127.0.0.0/8"]) is None
    assert complaint("http://localhost:8000/", ["localhost"]) is None
    assert complaint("http://localhost:8000/", ["127.0.0.0/8"]) is None
    assert complaint("http://ci.internal/hook", ()) is None  # sending will tell


@pytest.mark.parametrize("entry", ["10.0.0.0/33", "http://ci.local", "ci local", "*", "ci.*", ""])
def test_a_wrong_entry_of_the_allow_list_is_refused_at_the_start(entry: str) -> None:
    with pytest.raises(ValidationError, match="is no host and no network"):
        Settings(webhook_allow=("ci.local", entry))


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("ftp://ci.example/", "must begin with"),
        ("file:///etc/passwd", "must begin with"),
        ("gopher://ci.example/", "must begin with"),
        ("unix:///run/docker.sock", "must begin with"),
        ("ci.example/hook", "must begin with"),
        ("", "must begin with"),
        ("https://user@ci.example/", "user name"),
        ("https://ci.example\\@127.0.0.1/", "user name"),
        ("https://:secret@ci.example/", "user name"),
        ("https:///hook", "names no host"),
        ("https://ci.example:0/", "port"),
        ("https://ci.example:70000/", "port"),
        ("https://ci.example:80:80/", "cannot be read"),
        ("https://ci.example/\n", "cannot be read"),
        ("https://ci example/", "cannot be"),
        ("https://%31%32%37.0.0.1/", "cannot be"),
        ("https://[fe80::1%25eth0]/", "not on the public internet"),
        ("https://ci.example/" + "x" * 2000, "longer than"),
    ],
)
def test_what_cannot_be_a_url_is_said_at_once(url: str, says: str) -> None:
    assert says in (complaint(url, ()) or "")


@given(st.text(max_size=60), st.sampled_from(["", "http://", "https://", "https://ci.example"]))
def test_no_text_is_too_odd_for_a_complaint(text: str, start: str) -> None:
    complaint(start + text, ())


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key, and the certificate of ci.example that it signed itself."""
    made = tmp_path_factory.mktemp("tls") / "made.pem"
    command = ["openssl", "req", "-x509", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    names = ["-days", "2", "-subj", "/CN=ci.example", "-addext", "subjectAltName=DNS:ci.example"]
    try:
        subprocess.run([*command, *names, "-keyout", made, "-out", f"{made}.crt"], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("openssl is not installed")
    with made.open("a") as file:
        file.write(Path(f"{made}.crt").read_text())
    return made


def test_the_certificate_must_be_that_of_the_name(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    receiver = Receiver(certificate=str(certificate))
    receiver.up()
    try:
        with pytest.raises(OSError, match="self-signed"):
            send(f"https://ci.example:{receiver.port}/", HERE, to("127.0.0.1"))
        monkeypatch.setenv("SSL_CERT_FILE", f"{certificate}.crt")
        assert send(f"https://ci.example:{receiver.port}/", HERE, to("127.0.0.1")).status == 204
        with pytest.raises(OSError, match=r"not valid for 'other.example'"):
            send(f"https://other.example:{receiver.port}/", HERE, to("127.0.0.1"))
        with pytest.raises(OSError, match=r"not valid for '127.0.0.1'"):
            send(f"https://127.0.0.1:{receiver.port}/", HERE)
    finally:
        receiver.down()
    assert len(receiver.messages) == 1
