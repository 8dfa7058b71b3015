# SPDX-License-Identifier: Apache-2.0
"""Physical memory and its mappings: operations of Worker, like those of operations.py."""
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p

from driver_types import AllocationProp, INVALID_VALUE, MIB, NEVER, OUT_OF_MEMORY, Physical, TOO_MUCH


class VirtualMemory:
    """Physical memory: handles, their references, and their mappings."""

    UNIT = 2 * MIB
    SLOTS = 256

    def vmm_create(self):
        if len(self.physical) > 40:
            return
        handle, slots = c_uint64(), self.rng.choice((1, 1, 2, 3, 4))
        if self.rng.random() < 0.05:
            if self.expect((yield self.call("cuMemImportFromShareableHandle", byref(handle),
                                            c_void_p(3), c_int(1)))):
                self.physical.append(Physical(handle.value, slots))
            return
        prop = AllocationProp(1, 0, 1, self.rng.randrange(self.devices))
        if self.rng.random() < 0.05:
            prop.location_type, prop.location_id = 2, 0  # host memory
        if self.expect((yield self.call("cuMemCreate", byref(handle),
                                        c_size_t(slots * self.UNIT), byref(prop), c_uint64(0)))):
            self.physical.append(Physical(handle.value, slots))

    def vmm_map(self):
        if not self.range:
            at = c_uint64()
            if self.lib.cuMemAddressReserve(byref(at), c_size_t(self.SLOTS * self.UNIT),
                                            c_size_t(0), c_uint64(0), c_uint64(0)):
                return
            self.range = at.value
        usable = [p for p in self.physical if p.references and p.mappings < 3]
        if not usable:
            return
        p = self.rng.choice(usable)
        # Next to the others where possible, so that one unmap can take several.
        taken = set()
        for first, (_, n) in self.mapped.items():
            taken.update(range(first, first + n))
        slot = next((s for s in range(self.SLOTS - p.slots)
                     if not any(s + i in taken for i in range(p.slots))), None)
        if slot is None:
            return
        if self.expect((yield self.call("cuMemMap", c_uint64(self.range + slot * self.UNIT),
                                        c_size_t(p.slots * self.UNIT), c_size_t(0),
                                        c_uint64(p.handle), c_uint64(0)))):
            self.mapped[slot] = (p, p.slots)
            p.mappings += 1

    def vmm_unmap(self):
        if not self.mapped:
            return
        slot = first = self.rng.choice(sorted(self.mapped))
        together = []
        while slot in self.mapped and len(together) < self.rng.randint(1, 5):
            together.append(slot)
            slot += self.mapped[slot][1]
        if not self.expect((yield self.call("cuMemUnmap", c_uint64(self.range + first * self.UNIT),
                                            c_size_t((slot - first) * self.UNIT)))):
            return
        for s in together:
            p, _ = self.mapped.pop(s)
            p.mappings -= 1
            self.drop_unused(p)

    def drop_unused(self, p):
        if not p.references and not p.mappings:
            self.physical.remove(p)

    def vmm_retain(self):
        if not self.mapped:
            return
        slot = self.rng.choice(sorted(self.mapped))
        p, slots = self.mapped[slot]
        if p.references > 2:
            return
        inside = self.range + slot * self.UNIT + self.rng.randrange(slots * self.UNIT)
        handle = c_uint64()
        if self.expect((yield self.call("cuMemRetainAllocationHandle", byref(handle),
                                        c_uint64(inside)))):
            p.references += 1
            if handle.value != p.handle:
                self.expect(-1)

    def vmm_release(self):
        usable = [p for p in self.physical if p.references]
        if not usable or (len(usable) < 8 and self.rng.random() < 0.5):
            return
        p = self.rng.choice(usable)
        if self.expect((yield self.call("cuMemRelease", c_uint64(p.handle)))):
            p.references -= 1
            self.drop_unused(p)

    def vmm_bad(self):
        """Refused: part of a mapping, a gap, no granularity, too much."""
        handle = c_uint64()
        prop = AllocationProp(1, 0, 1, self.rng.randrange(self.devices))
        choices = [
            ("cuMemCreate", (byref(handle), c_size_t(TOO_MUCH), byref(prop), c_uint64(0))),
            ("cuMemCreate", (byref(handle), c_size_t(self.UNIT + 1), byref(prop), c_uint64(0))),
            ("cuMemRetainAllocationHandle", (byref(handle), c_uint64(NEVER))),
            ("cuMemUnmap", (c_uint64(NEVER), c_size_t(self.UNIT)))]
        wide = [s for s, (_, n) in self.mapped.items() if n > 1]
        if wide:
            at = c_uint64(self.range + self.rng.choice(sorted(wide)) * self.UNIT)
            choices.append(("cuMemUnmap", (at, c_size_t(self.UNIT))))
        name, args = self.rng.choice(choices)
        self.expect((yield self.call(name, *args)), INVALID_VALUE, OUT_OF_MEMORY)
