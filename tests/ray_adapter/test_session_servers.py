"""Session servers as actors: started, named in a session's URL, drained and stopped."""

from __future__ import annotations

import socket
import threading
import urllib.parse
from collections.abc import Iterator

import httpx2
import msgspec
import pytest

from sample_wire import Sample
from sample_wire.adapters.client import ClientLimits, SyncSessionClient
from sample_wire.adapters.server import ServerSettings
from sample_wire.demo.engine import EngineSettings, serve_engine
from sample_wire.errors import ClientError, ServerError

pytest.importorskip("ray")
import ray
from ray.exceptions import RayActorError

from sample_wire.adapters.ray import SessionServers, start_session_servers

from .conftest import NODE_ADDRESS

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("cluster")]
# Long enough for a busy machine; only a broken test waits it out.
PATIENCE_S = 60.0
ONE_TRY = ClientLimits(create_tries=1)
NO_CPU = {"num_cpus": 0}  # as many servers as a test likes, on a machine with few cores
ENGINE = EngineSettings(num_layers=2, num_experts=8, top_k=2, mean_answer_tokens=20)
MESSAGES = [{"role": "user", "content": "hi"}]
NOWHERE = ServerSettings(engine_url="http://127.0.0.1:9", tokenizer="chatml", port=0)


@pytest.fixture(scope="module")
def servers() -> Iterator[SessionServers]:
    """Two servers in front of the embedded engine, which nobody stops before the end."""
    with serve_engine(ENGINE) as url:
        settings = ServerSettings(
            engine_url=url, tokenizer="chatml", port=0, routing=ENGINE.routing_spec()
        )
        with start(2, settings) as running:
            yield running


def start(num_servers: int = 1, settings: ServerSettings = NOWHERE) -> SessionServers:
    return start_session_servers(settings, num_servers, actor_options=NO_CPU)


def port_of(url: str) -> int:
    port = urllib.parse.urlsplit(url).port
    assert port is not None
    return port


def chat(client: SyncSessionClient) -> None:
    url = f"{client.chat_base_url}/chat/completions"
    body = {"messages": MESSAGES, "max_tokens": 8}
    httpx2.post(url, json=body, timeout=PATIENCE_S, trust_env=False).raise_for_status()


def first_refusal(servers: SessionServers) -> ServerError:
    """What a new session is refused with, as soon as one is."""
    while True:
        try:
            with SyncSessionClient(servers.urls, limits=ONE_TRY):
                pass
        except ServerError as error:
            return error


def is_listened_to(url: str) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port_of(url))) == 0


def test_each_server_has_an_address_of_its_own(servers: SessionServers) -> None:
    assert len({*servers.urls}) == 2
    for url in servers.urls:
        assert httpx2.get(f"{url}/health", trust_env=False).json()["status"] == "ok"


def test_each_server_is_another_process_than_the_driver_and_the_others(
    servers: SessionServers,
) -> None:
    answers = [httpx2.get(f"{url}/health", trust_env=False).json() for url in servers.urls]
    assert len({found["session_server_instance_id"] for found in answers}) == 2


@pytest.mark.parametrize("which", [0, 1])
def test_a_session_s_url_names_the_server_that_owns_it(servers: SessionServers, which: int) -> None:
    owner, other = servers.urls[which], servers.urls[1 - which]
    with SyncSessionClient(owner) as client:
        assert client.chat_base_url == f"{owner}/sessions/{client.session_id}/v1"
        path = f"/sessions/{client.session_id}"
        assert httpx2.get(owner + path, trust_env=False).status_code == 200
        assert httpx2.get(other + path, trust_env=False).status_code == 404
        assert servers.num_sessions()[which] == 1
    assert servers.num_sessions() == [0, 0]


def test_a_session_on_an_actor_gives_its_sample_with_routing(servers: SessionServers) -> None:
    with SyncSessionClient(servers.urls) as client:
        chat(client)
        (sample,) = client.collect(Sample(label="kept")).samples
    assert sample.label == "kept"
    assert sample.rollout_routed_experts is not None
    assert sample.rollout_routed_experts.shape == (len(sample.tokens) - 1, 2, 2)


def test_a_server_for_all_addresses_is_named_by_its_node_s_own() -> None:
    settings = msgspec.structs.replace(NOWHERE, host="0.0.0.0")
    with start(settings=settings) as servers:
        (url,) = servers.urls
        assert urllib.parse.urlsplit(url).hostname == NODE_ADDRESS
        assert httpx2.get(f"{url}/health", trust_env=False).status_code == 200


def test_draining_refuses_new_sessions_and_waits_for_those_that_are_there() -> None:
    with start() as servers:
        client = SyncSessionClient(servers.urls, limits=ONE_TRY)
        client.create()
        left: list[int] = []
        drained = threading.Thread(target=lambda: left.append(servers.drain(timeout_s=PATIENCE_S)))
        drained.start()
        error = first_refusal(servers)
        assert (error.status, error.code) == (503, "draining")
        assert left == []
        client.close()
        drained.join(PATIENCE_S)
        assert left == [0]


def test_draining_that_takes_too_long_tells_how_many_sessions_are_left() -> None:
    with start(2) as servers:
        clients = [SyncSessionClient(url) for url in servers.urls]
        for client in clients:
            client.create()
        assert servers.drain(timeout_s=0.01) == 2
        assert servers.num_sessions() == [1, 1]
        clients[0].close()
        assert servers.drain(timeout_s=0.01) == 1
        clients[1].close()
        assert servers.drain(timeout_s=None) == 0


def test_a_client_of_several_servers_goes_to_one_that_does_not_drain() -> None:
    with start() as draining, start() as good:
        draining.drain(timeout_s=None)
        limits = ClientLimits(create_tries=2, create_pause_s=0.0)
        for _ in range(8):  # which is asked first is taken at random
            with SyncSessionClient([*draining.urls, *good.urls], limits=limits) as client:
                assert client.server_url == good.urls[0]


def test_idle_sessions_do_not_hold_up_a_server_that_drains() -> None:
    settings = msgspec.structs.replace(NOWHERE, idle_timeout_s=0.05)
    with start(settings=settings) as servers:
        SyncSessionClient(servers.urls).create()
        assert servers.drain(timeout_s=PATIENCE_S) == 0


def test_stopping_ends_servers_and_their_sessions() -> None:
    servers = start(2)
    client = SyncSessionClient(servers.urls[0], limits=ONE_TRY)
    client.create()
    assert all(map(is_listened_to, servers.urls))
    servers.stop()
    assert not any(map(is_listened_to, servers.urls))
    with pytest.raises(ClientError):
        client.collect(Sample())


def test_stopping_again_does_nothing() -> None:
    servers = start()
    servers.stop()
    servers.stop()
    assert servers.num_sessions() == []
    assert servers.drain(timeout_s=None) == 0


def test_a_server_that_has_died_is_told_and_does_not_keep_others_from_stopping() -> None:
    servers = start(2)
    ray.kill(servers._actors[0])
    with pytest.raises(RayActorError):
        servers.num_sessions()
    with pytest.raises(RayActorError):
        servers.drain(timeout_s=None)
    servers.stop()
    assert not is_listened_to(servers.urls[1])


def test_settings_that_do_not_hold_are_told_by_their_own_error() -> None:
    settings = msgspec.structs.replace(NOWHERE, tokenizer="/no/such")
    with pytest.raises((OSError, ValueError), match="/no/such"):
        start(2, settings)


def test_a_port_in_use_is_an_oserror_and_leaves_no_server() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = msgspec.structs.replace(NOWHERE, port=port)
    with pytest.raises(OSError, match=f"127.0.0.1:{port}"):
        start(2, settings)
    while is_listened_to(f"http://127.0.0.1:{port}"):
        pass  # the process of the one that had the port is about to end


@pytest.mark.parametrize("num_servers", [0, -1])
def test_no_servers_are_refused(num_servers: int) -> None:
    with pytest.raises(ValueError, match="num_servers must be at least 1"):
        start(num_servers)


def test_several_workers_are_refused() -> None:
    settings = msgspec.structs.replace(NOWHERE, workers=2)
    with pytest.raises(ValueError, match="workers must be 1"):
        start(settings=settings)


def test_actor_options_reach_ray() -> None:
    with pytest.raises(ValueError, match="no_such_option"):
        start_session_servers(NOWHERE, 1, actor_options={"no_such_option": 1})
