// SPDX-License-Identifier: Apache-2.0

// Package numa reads how much memory of processes is resident, and on which NUMA nodes.
// Its only inputs are files of procfs and sysfs.
package numa

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Process is the memory of a process at one moment, from /proc/PID/status.
type Process struct {
	RSSBytes     uint64 `json:"rss_bytes"`
	FileBytes    uint64 `json:"rss_file_bytes"`
	AnonBytes    uint64 `json:"rss_anon_bytes"`
	ShmemBytes   uint64 `json:"rss_shmem_bytes"`
	LockedBytes  uint64 `json:"locked_bytes"`
	SwapBytes    uint64 `json:"swap_bytes"`
	Threads      uint64 `json:"threads"`
	Voluntary    uint64 `json:"voluntary_switches"`   // of its main thread
	Involuntary  uint64 `json:"involuntary_switches"` // of its main thread
	CPUsAllowed  string `json:"cpus_allowed"`
	NodesAllowed string `json:"nodes_allowed"`
}

// Node is the memory of a node, from /sys/devices/system/node/nodeN/meminfo.
type Node struct {
	Node       int    `json:"node"`
	TotalBytes uint64 `json:"total_bytes"`
	FreeBytes  uint64 `json:"free_bytes"`
	FileBytes  uint64 `json:"file_bytes"`
	AnonBytes  uint64 `json:"anon_bytes"`
}

// Status reads a process. The error is fs.ErrNotExist for one that does not exist.
func Status(procfs string, pid uint32) (Process, error) {
	b, err := os.ReadFile(filepath.Join(procfs, strconv.FormatUint(uint64(pid), 10), "status"))
	if err != nil {
		return Process{}, err
	}
	return parseStatus(b), nil
}

func parseStatus(b []byte) (p Process) {
	kib := map[string]*uint64{
		"VmRSS": &p.RSSBytes, "RssFile": &p.FileBytes, "RssAnon": &p.AnonBytes, "RssShmem": &p.ShmemBytes,
		"VmLck": &p.LockedBytes, "VmSwap": &p.SwapBytes,
	}
	counts := map[string]*uint64{
		"Threads": &p.Threads, "voluntary_ctxt_switches": &p.Voluntary, "nonvoluntary_ctxt_switches": &p.Involuntary,
	}
	for line := range strings.Lines(string(b)) {
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		if to := kib[key]; to != nil {
			n, _ := strconv.ParseUint(strings.TrimSuffix(value, " kB"), 10, 53)
			*to = n << 10
		} else if to := counts[key]; to != nil {
			*to, _ = strconv.ParseUint(value, 10, 64)
		}
		switch key {
		case "Cpus_allowed_list":
			p.CPUsAllowed = value
		case "Mems_allowed_list":
			p.NodesAllowed = value
		}
	}
	return p
}

// Pages reads how many bytes of a process are on each node, by node number. The kernel
// walks the page tables for it, which takes a few milliseconds per GiB of small pages.
func Pages(procfs string, pid uint32) (map[string]uint64, error) {
	f, err := os.Open(filepath.Join(procfs, strconv.FormatUint(uint64(pid), 10), "numa_maps"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return parsePages(f)
}

// parsePages adds up lines such as
//
//	7f12 default file=/x mapped=3 N0=2 N1=1 kernelpagesize_kB=4
//
// The name of a file may hold anything but spaces, which are escaped.
func parsePages(r io.Reader) (map[string]uint64, error) {
	all := map[string]uint64{}
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 64<<10), 1<<20)
	for lines.Scan() {
		size := uint64(4)
		pages := map[string]uint64{}
		for n, word := range bytes.Fields(lines.Bytes()) {
			key, value, ok := strings.Cut(string(word), "=")
			if n < 2 || !ok {
				continue
			}
			if key == "kernelpagesize_kB" {
				if kib, err := strconv.ParseUint(value, 10, 32); err == nil {
					size = kib
				}
			} else if node, isNode := strings.CutPrefix(key, "N"); isNode {
				if number, err := strconv.ParseUint(node, 10, 16); err == nil {
					count, _ := strconv.ParseUint(value, 10, 40)
					pages[strconv.FormatUint(number, 10)] += count
				}
			}
		}
		for node, count := range pages {
			all[node] += count * size << 10
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read numa_maps: %w", err)
	}
	return all, nil
}

// Nodes reads all nodes of the machine; none if there are no such files.
func Nodes(sysfs string) []Node {
	paths, _ := filepath.Glob(filepath.Join(sysfs, "devices/system/node/node[0-9]*"))
	var all []Node
	for _, path := range paths {
		number, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(path), "node"))
		if err != nil {
			continue
		}
		b, err := os.ReadFile(filepath.Join(path, "meminfo"))
		if err != nil {
			continue // it was unplugged
		}
		n := Node{Node: number}
		fields := map[string]*uint64{
			"MemTotal:": &n.TotalBytes, "MemFree:": &n.FreeBytes, "FilePages:": &n.FileBytes, "AnonPages:": &n.AnonBytes,
		}
		for line := range strings.Lines(string(b)) {
			// Node 0 MemTotal: 24610124 kB
			words := strings.Fields(line)
			if len(words) < 4 {
				continue
			}
			if to := fields[words[2]]; to != nil {
				kib, _ := strconv.ParseUint(words[3], 10, 53)
				*to = kib << 10
			}
		}
		all = append(all, n)
	}
	return all
}
