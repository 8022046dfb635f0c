"""Step 6 of a push, record: writes updates into the snapshots from which xDS streams are served, and problems into the
list that users see.

Input: the updates of `join.py` and the problems of `contribute.py`. What the groups of a viewpoint have in common is
recorded once, in a layer under the tables of these groups (`xds/layer.py`); this step owns the layers. Rule: make
before break, also between the layer and a group: if a resource moves from the layer to a group or back, no proxy sees
it removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from weft.base.problem import Problem
from weft.control.problems import Problems
from weft.control.push.compiled import Update
from weft.control.push.join import ViewpointUpdate
from weft.control.push.viewpoints import Viewer, Viewpoint
from weft.model.group import Group
from weft.xds.layer import Layer
from weft.xds.snapshot import Snapshots


class RecordStep:
    def __init__(self, snapshots: Snapshots, problems: Problems) -> None:
        self._snapshots, self._problems = snapshots, problems
        self._layers: dict[Viewpoint, Layer] = {}

    def push(
        self,
        common: Mapping[Viewpoint, ViewpointUpdate],
        own: Mapping[Group, Update],
        moved: Mapping[Group, Viewpoint],
    ) -> None:
        """Write the updates into the snapshots: those of viewpoints (`common`) into the layers that their groups
        share, those of groups (`own`) into the groups' own tables. `moved`: groups that get another viewpoint,
        and so another layer."""
        for viewpoint, below in common.items():
            for group in viewpoint.groups:
                update = own.get(group)
                if update and group not in moved and (kept := staying(update, below.update)):
                    self._snapshots.update(group, kept)
        for viewpoint, below in common.items():
            self._snapshots.update_layer(self._layer(viewpoint), below.update)
        for group, update in own.items():
            if group in moved:
                self._snapshots.update(group, update, self._layer(moved[group]))
            elif update:
                self._snapshots.update(group, update)

    def endpoints(self, updates: Mapping[Viewer, Update]) -> None:
        for viewer, update in updates.items():
            if isinstance(viewer, Viewpoint):
                self._snapshots.update_layer(self._layer(viewer), update)
            else:
                self.group(viewer, update)

    def group(self, group: Group, update: Update) -> None:
        if update:
            self._snapshots.update(group, update)

    def problems(self, problems: Mapping[str, Iterable[Problem]]) -> None:
        """Replace all problems of translation for each of these hosts."""
        for host, of_host in problems.items():
            self._problems.put(("translation", host), of_host)

    def drop(self, group: Group) -> None:
        self._snapshots.drop(group)

    def forget(self, viewpoint: Viewpoint) -> None:
        """Drop the layer of a viewpoint that has no groups any more."""
        self._layers.pop(viewpoint, None)

    def _layer(self, viewpoint: Viewpoint) -> Layer:
        layer = self._layers.get(viewpoint)
        if layer is None:
            layer = self._layers[viewpoint] = Layer()
        return layer


def staying(update: Update, common: Update) -> Update:
    """Return the part of `update` with the resources that move from the shared layer to a group: `common` removes them
    from the layer, and `update` sets them for the group. They must be set before they are removed, so that no proxy
    sees them removed."""
    moving: Update = {}
    for type_url, resources in update.items():
        going = common.get(type_url, {})
        stays = {
            name: built for name, built in resources.items() if built is not None and going.get(name, built) is None
        }
        if stays:
            moving[type_url] = dict(stays)
    return moving
