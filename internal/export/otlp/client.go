// SPDX-License-Identifier: Apache-2.0

package otlp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/gzip" // half the CPU time of the standard library
	logs "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	collector "go.opentelemetry.io/proto/otlp/collector/profiles/v1development"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/gpu-gadgets/gpu-gadgets/internal/export/queue"
	"github.com/gpu-gadgets/gpu-gadgets/internal/export/remote"
)

// Protocol of an endpoint.
type Protocol string

const (
	GRPC Protocol = "grpc"
	HTTP Protocol = "http"
)

// Protocols are all of them.
var Protocols = []string{string(GRPC), string(HTTP)}

// Client is safe for concurrent use. Its errors are those of package queue: the data
// itself is refused, for good or for now, or the request can be retried. Credentials, addresses and a server's
// features can be corrected during the run, so these errors are retried as well.
type Client struct {
	exporter
}

type exporter interface {
	// profiles and logs return the error with its kind, and the answer's code.
	profiles(context.Context, *collector.ExportProfilesServiceRequest) (code, error)
	logs(context.Context, *logs.ExportLogsServiceRequest) (code, error)
	close()
}

// code is the status that Check uses, for either protocol.
type code int

const (
	codeOK code = iota
	codeUnreachable
	codeUnauthorized
	codeForbidden
	codeUnknownPath // or service
	codeOther
)

// NewClient does not contact the server.
func NewClient(p Protocol, e *remote.Endpoint) (*Client, error) {
	if p == HTTP {
		return &Client{&httpExporter{base: e.URL.String(), client: e.Client()}}, nil
	}
	if e.URL.Path != "" {
		return nil, fmt.Errorf("gRPC has no path %s: want only host and port", e.URL.Path)
	}
	g, err := newGRPC(e)
	return &Client{g}, err
}

// Close closes idle connections.
func (c *Client) Close() { c.close() }

// Profiles sends one request.
func (c *Client) Profiles(ctx context.Context, r *collector.ExportProfilesServiceRequest) error {
	_, err := c.profiles(ctx, r)
	return err
}

// Logs sends one request. A server that does not accept logs refuses them for good.
func (c *Client) Logs(ctx context.Context, r *logs.ExportLogsServiceRequest) error {
	code, err := c.logs(ctx, r)
	if code == codeUnknownPath {
		return &queue.RejectedError{Err: err}
	}
	return err
}

// TakesLogs is false if the server answers that it does not, like Pyroscope.
func (c *Client) TakesLogs(ctx context.Context) bool {
	code, _ := c.logs(ctx, &logs.ExportLogsServiceRequest{})
	return code != codeUnknownPath
}

// Check checks whether the server would accept profiles. Only a negative answer is an
// error; a server that does not answer may be up later.
func (c *Client) Check(ctx context.Context) (unreachable, refused error) {
	// Without a dictionary Pyroscope 1.21 accepts nothing, not even an empty request.
	code, err := c.profiles(ctx, &collector.ExportProfilesServiceRequest{Dictionary: newDictionary().out})
	return answered(code, err, "it does not take OTLP profiles (a collector needs --feature-gates=service.profilesSupport)")
}

// CheckLogs is Check for logs.
func (c *Client) CheckLogs(ctx context.Context) (unreachable, refused error) {
	code, err := c.logs(ctx, &logs.ExportLogsServiceRequest{})
	return answered(code, err, "it does not take OTLP logs")
}

func answered(code code, err error, unknown string) (unreachable, refused error) {
	switch code {
	case codeUnreachable:
		return err, nil
	case codeUnauthorized:
		return nil, fmt.Errorf("%w: it requires other credentials", err)
	case codeForbidden:
		return nil, fmt.Errorf("%w: these credentials do not allow writing", err)
	case codeUnknownPath:
		return nil, fmt.Errorf("%w: %s", err, unknown)
	}
	return nil, nil // an empty request may be refused as such
}

type httpExporter struct {
	base     string
	client   *http.Client
	encoders sync.Pool // of *encoder
}

// encoder encodes a message into a body. Both buffers are as large as a request.
type encoder struct {
	raw []byte
	zip *gzip.Writer
}

// level is that of the profiles for Pyroscope, for the same reason.
const level = 5

// encode appends the message to a body, compressed.
func (h *httpExporter) encode(to *bytes.Buffer, message proto.Message) error {
	e, ok := h.encoders.Get().(*encoder)
	if !ok {
		e = &encoder{}
		e.zip, _ = gzip.NewWriterLevel(nil, level) // a valid level
	}
	defer h.encoders.Put(e)
	var err error
	if e.raw, err = (proto.MarshalOptions{}).MarshalAppend(e.raw[:0], message); err != nil {
		return err
	}
	e.zip.Reset(to)
	_, err = e.zip.Write(e.raw)
	return errors.Join(err, e.zip.Close())
}

func (h *httpExporter) close() { h.client.CloseIdleConnections() }

func (h *httpExporter) profiles(ctx context.Context, r *collector.ExportProfilesServiceRequest) (code, error) {
	answer := &collector.ExportProfilesServiceResponse{}
	code, err := h.post(ctx, "/v1development/profiles", r, answer)
	if err == nil {
		err = partial(answer.GetPartialSuccess().GetRejectedProfiles(), answer.GetPartialSuccess().GetErrorMessage())
	}
	return code, err
}

func (h *httpExporter) logs(ctx context.Context, r *logs.ExportLogsServiceRequest) (code, error) {
	answer := &logs.ExportLogsServiceResponse{}
	code, err := h.post(ctx, "/v1/logs", r, answer)
	if err == nil {
		err = partial(answer.GetPartialSuccess().GetRejectedLogRecords(), answer.GetPartialSuccess().GetErrorMessage())
	}
	return code, err
}

// partial returns an error if the server has accepted the request but dropped parts of it.
func partial(rejected int64, message string) error {
	if rejected == 0 {
		return nil
	}
	return &queue.RejectedError{Err: fmt.Errorf("%d refused: %s", rejected, oneLine(message))}
}

func (h *httpExporter) post(ctx context.Context, path string, message, to proto.Message) (code, error) {
	var body bytes.Buffer
	if err := h.encode(&body, message); err != nil {
		return codeOther, &queue.RejectedError{Err: fmt.Errorf("encode: %w", err)}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, h.base+path, &body)
	if err != nil {
		return codeOther, &queue.RejectedError{Err: err}
	}
	request.Header.Set("Content-Type", "application/x-protobuf")
	request.Header.Set("Content-Encoding", "gzip")
	response, err := h.client.Do(request)
	if err != nil {
		return codeUnreachable, err
	}
	defer response.Body.Close()
	const maxAnswer = 64 << 10
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if response.StatusCode/100 == 2 {
		if err != nil {
			return codeOther, err
		}
		// An unreadable answer does not mean that the data was refused.
		_ = proto.Unmarshal(answer, to)
		return codeOK, nil
	}
	return httpError(response, answer)
}

func httpError(response *http.Response, answer []byte) (code, error) {
	err := errors.New(response.Status)
	if text := message(response, answer); text != "" {
		err = errors.New(response.Status + ": " + text)
	}
	switch response.StatusCode {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity:
		return codeOther, &queue.RejectedError{Err: err}
	case http.StatusInternalServerError:
		// Pyroscope 1.21 reports invalid data over HTTP like this.
		if bytes.Contains(answer, []byte("code = InvalidArgument")) {
			return codeOther, &queue.RejectedError{Err: err}
		}
	case http.StatusUnauthorized:
		return codeUnauthorized, err
	case http.StatusForbidden:
		return codeForbidden, err
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		return codeUnknownPath, err
	}
	if seconds, bad := strconv.ParseUint(response.Header.Get("Retry-After"), 10, 31); bad == nil && seconds > 0 {
		err = &queue.LaterError{Err: err, After: time.Duration(seconds) * time.Second}
	}
	// 502, 503 and 504 are answers for a server that is away.
	if response.StatusCode == http.StatusTooManyRequests || response.StatusCode == http.StatusInternalServerError {
		err = &queue.AnsweredError{Err: err}
	}
	return codeUnreachable, err
}

// message is the server's message: text, or the status of OTLP over HTTP.
func message(response *http.Response, answer []byte) string {
	var s status.Status
	if response.Header.Get("Content-Type") == "application/x-protobuf" && proto.Unmarshal(answer, &s) == nil {
		return oneLine(s.GetMessage())
	}
	return oneLine(string(answer))
}

// oneLine is the beginning of a message for a log.
func oneLine(s string) string {
	s = strings.Join(strings.Fields(strings.ToValidUTF8(s, "?")), " ")
	if len(s) > 200 {
		s = strings.ToValidUTF8(s[:200], "") + "…"
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' {
			return '?'
		}
		return r
	}, s)
}
