from __future__ import annotations

import pytest

from local.rig import CALLER, SERVICE, mesh, settings, web

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("run_base")]


async def test_the_trust_domain_is_the_one_of_the_first_files_and_stays():
    async with mesh(settings("trustDomain: shop.example"), SERVICE, web()) as rig:
        await rig.until_ready("web-0")
        assert rig.pod("web").status({}).identity.identity == "spiffe://shop.example/ns/shop/sa/default"
        rig.write("0.yaml", settings("trustDomain: other.example"))
        said = "the trust domain of a running mesh cannot change and stays shop.example"
        await rig.until(lambda status: any(said in problem.what for problem in status.problems))
        assert rig.engine.control.mesh.settings.trust_domain == "shop.example"
        rig.write("0.yaml", settings("trustDomain: shop.example"))
        await rig.until(lambda status: not any(said in problem.what for problem in status.problems))
        (rig.directory / "0.yaml").unlink()
        await rig.until(lambda status: any(said in problem.what for problem in status.problems))
        assert rig.engine.control.mesh.settings.trust_domain == "shop.example"
        rig.write("0.yaml", settings("trustDomain: shop.example"))
        await rig.until(lambda status: not any(said in problem.what for problem in status.problems))


async def test_an_access_log_that_proxies_cannot_write_is_a_problem_and_the_mesh_runs():
    async with mesh(SERVICE, web(), CALLER, settings("accessLogFile: /root/access.log")) as rig:
        status = await rig.until_ready("caller-0", "web-0")
        (problem,) = status.problems
        assert "the proxies' user, UID 1337, may not enter" in problem.what and problem.where.file.endswith("3.yaml")
        assert (await rig.fetch("caller", rig.address()))[0] == 200
        (rig.directory / "3.yaml").unlink()
        await rig.until(lambda status: not status.problems)


async def test_an_address_that_two_services_write_down_is_a_problem_until_one_of_them_is_gone():
    first = SERVICE.replace("spec:", "spec:\n  clusterIP: 10.96.0.10")
    second, without = first.replace("name: web,", "name: copy,"), SERVICE.replace("name: web,", "name: free,")
    async with mesh(first, second, without) as rig:
        (problem,) = rig.engine.problems()
        assert "address 10.96.0.10 is already used by shop/copy.shop.svc.cluster.local" in problem.what
        assert rig.address("free").startswith("10.96."), "who writes none down is given one"
        (rig.directory / "0.yaml").unlink()
        await rig.until(lambda status: not status.problems)
