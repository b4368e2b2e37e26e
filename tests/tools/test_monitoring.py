"""The dashboard and the alert rules of mount-scripts/monitoring. That they name metrics which there are is
tests/mount/test_metrics.py's business."""
import json
import re
import shutil

import pytest
from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from lab.programs import REPOSITORY, run

MONITORING = REPOSITORY / "mount-scripts/monitoring"


@pytest.mark.skipif(not shutil.which("promtool"), reason="needs promtool (Debian package prometheus)")
def test_alert_rules():
    run("promtool", "check", "rules", MONITORING / "alerts.yml")
    run("promtool", "test", "rules", MONITORING / "alerts_test.yml")


def test_every_alert_has_a_test_and_is_explained():
    alerts = re.findall(r"- alert: (\w+)", (MONITORING / "alerts.yml").read_text())
    tests = (MONITORING / "alerts_test.yml").read_text()
    page = (REPOSITORY / "docs/monitoring.md").read_text()
    assert len(alerts) == len(set(alerts)) > 5
    for alert in alerts:
        assert re.search(rf"alertname: {alert}\n +exp_alerts:", tests), f"no test has {alert} go off"
        assert f"`{alert}`" in page, f"docs/monitoring.md says nothing of {alert}"


def unknown_to(schema, value, path="dashboard"):
    """What is in `value` and not in what was made of it by the schema."""
    if isinstance(value, dict):
        for key, below in value.items():
            yield from unknown_to(schema[key], below, f"{path}.{key}") if key in schema else [f"{path}.{key}"]
    elif isinstance(value, list):
        for index, below in enumerate(value):
            yield from unknown_to(schema[index], below, f"{path}[{index}]")
    elif value != schema:
        yield f"{path}: {value} and {schema}"


def test_the_dashboard_fits_grafanas_schema():
    """As Grafana's own classes have it, which are generated from the schema: nothing is of another type, or unknown."""
    plugins.register_default_plugins()
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    read = json.loads(JSONEncoder().encode(Dashboard.from_json(dashboard)))
    assert list(unknown_to(read, dashboard)) == []
    assert list(unknown_to(read, dashboard | {"panles": []})) == ["dashboard.panles"]


def test_the_dashboard_is_one_that_grafana_takes():
    """What it asks of a dashboard and of each panel beyond that (dashboard JSON model, schemaVersion 36)."""
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    assert dashboard["title"] and dashboard["schemaVersion"] >= 36 and re.fullmatch(r"[\w-]{1,40}", dashboard["uid"])
    assert "id" not in dashboard, "an id is of one Grafana's database"
    variables = {variable["name"]: variable for variable in dashboard["templating"]["list"]}
    assert all(variable["type"] in ("datasource", "query", "custom") for variable in variables.values())
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken = set()
    for panel in panels:
        assert panel["type"] in ("row", "timeseries", "stat") and panel["title"]
        place = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
        assert max(x for x, _ in cells) < 24 and not cells & taken, f"{panel['title']} lies over another panel"
        taken |= cells
        if panel["type"] == "row":
            continue
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"} and panel["fieldConfig"]["defaults"]["unit"]
        references = [target["refId"] for target in panel["targets"]]
        assert references and len(set(references)) == len(references)
        for target in panel["targets"]:
            assert target["expr"].count("(") == target["expr"].count(")")
            used = set(re.findall(r"\$(?!__)\{?(\w+)", target["expr"]))
            assert {"job", "instance"} <= used <= set(variables), target["expr"]
