#!/usr/bin/env python3
"""Prints the data that TensorBoard serves for a folder, as JSON: scalars, text and hyperparameters.

usage: tb_scalars.py LOGDIR POINTS [option of tensorboard...]

TensorBoard reads while it serves. So it is queried until there are POINTS scalars in all, every session has ended, and
two answers are the same, for five minutes at most. Then the last answer is printed.
"""
import json
import sys
import time
import urllib.parse
import urllib.request

from tensorboard_server import TensorBoard

logdir, points, options = sys.argv[1], int(sys.argv[2]), sys.argv[3:]


def ask(path, body=None, **query):
    url = f"{server.address}data/plugin/{path}?{urllib.parse.urlencode(query)}"
    body = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"} if body else {})
    with urllib.request.urlopen(request, timeout=300) as answer:
        return json.loads(answer.read())


def scalars():
    tags = ask("scalars/tags")
    return {run: {tag: ask("scalars/scalars", run=run, tag=tag) for tag in tags[run]} for run in tags}


def text():
    tags = ask("text/tags")
    return {run: {tag: ask("text/text", run=run, tag=tag) for tag in tags[run]} for run in tags}


def hparams():
    experiment = ask("hparams/experiment", {"experimentName": ""})
    infos = experiment.get("hparamInfos", [])
    names = [info["name"] for info in infos]
    statuses = ["STATUS_UNKNOWN", "STATUS_SUCCESS", "STATUS_FAILURE", "STATUS_RUNNING"]
    columns = [{"hparam": name, "includeInResult": True} for name in names]
    metrics = [info["name"] for info in experiment.get("metricInfos", [])]
    columns += [{"metric": metric, "includeInResult": True} for metric in metrics]
    request = {"experimentName": "", "allowedStatuses": statuses, "colParams": columns}
    request |= {"startIndex": 0, "sliceSize": 100}
    groups = ask("hparams/session_groups", request) if infos else {}
    return {"experiment": experiment, "groups": groups.get("sessionGroups", [])}


def all_read(found):
    series = [series for tags in found["scalars"].values() for series in tags.values()]
    sessions = [session for group in found["hparams"]["groups"] for session in group["sessions"]]
    over = all(session.get("status") in ("STATUS_SUCCESS", "STATUS_FAILURE") for session in sessions)
    return sum(len(points) for points in series) >= points and over


with TensorBoard(logdir, "--reload_interval", "1", "--samples_per_plugin", "scalars=100000", *options) as server:
    until, found = time.monotonic() + 300, None
    while time.monotonic() < until and server.runs():
        last = found
        try:
            found = {"scalars": scalars(), "text": text(), "hparams": hparams()}
            if all_read(found) and json.dumps(found) == json.dumps(last):
                break
        except OSError:
            pass  # The tag is not there yet.
        time.sleep(0.3)
    if not server.runs():
        sys.exit(f"tensorboard ended: {server.log()}")
    print(json.dumps(found))
