// SPDX-License-Identifier: Apache-2.0

// Package ras queries NCCL's own RAS service (2.24 and later) about a job: how many
// collectives each rank has issued, and which ranks do not answer. A process of the job
// listens at localhost:28028, or at NCCL_RAS_ADDR of its environment. The protocol is
// lines of text, the answer JSON since 2.28.9; both were read from NCCL's sources
// (src/ras/client.cc, client_support.cc).
//
// Any program may listen there, so answers are bounded in time and size, and only
// compared with our own data.
package ras

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"strings"
	"time"
)

const (
	// DefaultPort is NCCL_RAS_CLIENT_PORT.
	DefaultPort = 28028
	// protocol is NCCL_RAS_CLIENT_PROTOCOL, of 2.24.3 to 2.30.
	protocol = 2
	// collect is how long NCCL may wait for other processes: it doubles that if some do
	// not answer.
	collect = 3 * time.Second
	// greet is how long it may take until the service answers at all. It has a thread for that.
	greet = 2 * time.Second
	// limit is that of a whole query.
	limit = 4 * collect
	// maxLine of an answer to a command.
	maxLine = 512
	// maxAnswer is room for 30,000 ranks.
	maxAnswer = 16 << 20
)

// ErrOld means that NCCL's RAS there has human-readable output only (2.24 to 2.28.7).
var ErrOld = errors.New("NCCL's RAS has no JSON output (2.28.9 and later have)")

// ErrNotRAS means that another service listens there.
var ErrNotRAS = errors.New("not NCCL's RAS")

// ErrSilent means that the connection was accepted and nothing answers. The processes of a node share the port, and the
// kernel chooses one for each connection: it may be one that is stopped, and the next connection may reach another.
var ErrSilent = errors.New("nothing answers")

// Status is the answer.
type Status struct {
	Version       string         `json:"nccl_version"`
	Communicators []Communicator `json:"communicators"`
}

// Communicator is RAS's view of one, on all nodes.
type Communicator struct {
	// Hash is NCCL's own, "0x…".
	Hash    string    `json:"hash"`
	Size    int       `json:"size"`
	Ranks   []Rank    `json:"ranks"`
	Missing []Missing `json:"missing_ranks"`
}

// Rank is one that has answered.
type Rank struct {
	Rank   int    `json:"rank"`
	Host   string `json:"host"`
	PID    int    `json:"pid"` // in its own namespace
	Status struct {
		AsyncError int  `json:"async_error"`
		Abort      bool `json:"abort_flag"`
	} `json:"status"`
	// Counts of collectives issued, by the name of the operation.
	Counts map[string]uint64 `json:"collective_counts"`
}

// Missing is a rank that has not answered.
type Missing struct {
	Rank   int    `json:"rank"`
	Host   string `json:"host"`
	PID    int    `json:"pid"`
	Status struct {
		Unresponsive bool `json:"unresponsive"`
		Dead         bool `json:"considered_dead"`
	} `json:"status"`
}

// issued counts all collectives of a rank, without sends and receives.
func (r *Rank) issued() (sum uint64) {
	for name, n := range r.Counts {
		switch name {
		case "Send", "Recv", "SendRecv":
		default:
			sum += n
		}
	}
	return sum
}

// Query queries the service at the other end. It ends with the context, at the latest after
// 12 s, and closes the connection.
func Query(ctx context.Context, c net.Conn) (*Status, error) {
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := c.SetDeadline(time.Now().Add(greet)); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	r := bufio.NewReaderSize(c, maxLine)
	answer, err := command(c, r, fmt.Sprintf("CLIENT PROTOCOL %d", protocol))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, fmt.Errorf("%w for %v", ErrSilent, greet)
	}
	if err != nil {
		return nil, err
	}
	deadline, _ := ctx.Deadline()
	if err := c.SetDeadline(deadline); err != nil {
		return nil, err
	}
	if !strings.HasPrefix(strings.ToUpper(answer), "SERVER PROTOCOL ") {
		return nil, fmt.Errorf("%w: it answers %q", ErrNotRAS, answer)
	}
	if answer, err = command(c, r, fmt.Sprintf("TIMEOUT %d", int(collect.Seconds()))); err != nil {
		return nil, err
	} else if answer != "OK" {
		return nil, fmt.Errorf("%w: it answers %q to a timeout", ErrNotRAS, answer)
	}
	if answer, err = command(c, r, "SET FORMAT json"); err != nil {
		return nil, err
	} else if answer != "OK" {
		return nil, ErrOld
	}
	if _, err := io.WriteString(c, "STATUS\n"); err != nil {
		return nil, fmt.Errorf("ask for the status: %w", err)
	}
	body, err := io.ReadAll(io.LimitReader(r, maxAnswer+1))
	if err != nil {
		return nil, fmt.Errorf("read the status: %w", err)
	}
	if len(body) > maxAnswer {
		return nil, fmt.Errorf("the status has more than %d MiB", maxAnswer>>20)
	}
	return Parse(body)
}

// command sends one, and returns the line that answers it.
func command(c net.Conn, r *bufio.Reader, text string) (string, error) {
	if _, err := io.WriteString(c, text+"\n"); err != nil {
		return "", fmt.Errorf("send %q: %w", text, err)
	}
	line, err := r.ReadSlice('\n') // at most maxLine
	if err != nil {
		return "", fmt.Errorf("read the answer to %q: %w", text, err)
	}
	return strings.TrimSpace(string(line)), nil
}

// unseparated matches a rank that has not answered as 2.28.9 writes it, without a comma. 2.29 has one.
var unseparated = regexp.MustCompile(`("nvml_dev": -?\d+)(\s+"status":)`)

// Parse reads a status.
func Parse(body []byte) (*Status, error) {
	s := &Status{}
	err := json.Unmarshal(body, s)
	if _, ok := errors.AsType[*json.SyntaxError](err); ok {
		s = &Status{}
		err = json.Unmarshal(unseparated.ReplaceAll(body, []byte("$1,$2")), s)
	}
	if err != nil {
		return nil, fmt.Errorf("read the status: %w", err)
	}
	return s, nil
}
