// SPDX-License-Identifier: Apache-2.0

package backends

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gpu-gadgets/gpu-gadgets/test/support/loopback"
)

// outage is a way in which a collector is away for a while.
type outage struct {
	name    string
	options collectorOptions
	scheme  string
	flags   []string
	away    func(t *testing.T, c *collector)
	warning string
}

// TestNothingIsLostWhileTheCollectorIsAway: the real one, unreachable in three ways,
// while the inference example continues.
func TestNothingIsLostWhileTheCollectorIsAway(t *testing.T) {
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	require.NoError(t, err)
	defer stats.Close()
	dir := t.TempDir()
	ca := newAuthority(t, filepath.Join(dir, "ca.pem"))
	certificate, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for _, c := range []outage{
		// Stopped first, so that a request is on its way when it dies.
		{name: "killed in the middle of a request", scheme: "http", warning: "Unavailable",
			away: func(t *testing.T, c *collector) {
				for range 3 {
					c.hang(t)
					time.Sleep(2500 * time.Millisecond)
					c.kill()
					time.Sleep(time.Second)
					c.start(t, c.GRPC)
					time.Sleep(2 * time.Second)
				}
			}},
		// Longer than a request may take.
		{name: "hangs", scheme: "http", warning: "DeadlineExceeded",
			away: func(t *testing.T, c *collector) {
				c.hang(t)
				time.Sleep(15 * time.Second)
				c.wake(t)
			}},
		// Connections are short-lived, so that the certificate is checked.
		{name: "its certificate expires", scheme: "https", flags: []string{"--otlp-ca-file", ca.path},
			options: collectorOptions{grpc: fmt.Sprintf(`, tls: {cert_file: %q, key_file: %q, reload_interval: 1s}, keepalive: {server_parameters: {max_connection_age: 1s}}`, certificate, key)},
			warning: "certificate has expired",
			away: func(t *testing.T, c *collector) {
				time.Sleep(20 * time.Second)
				ca.issue(t, certificate, key, time.Now().Add(time.Hour))
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ca.issue(t, certificate, key, time.Now().Add(20*time.Second))
			c.test(t)
		})
	}
}

// test requires that the profiles of a run with an outage are complete, and that probes and
// memory cost hardly more meanwhile.
func (o outage) test(t *testing.T) {
	t.Helper()
	receiver := startCollector(t, o.options)
	w := startExample(t, "--devices", "1", "--leak", "--seconds", "40", "--step-ms", "10", "--layers", "8", "--hold", "600")
	listen := loopback.FreeAddress(t)
	g := trace(t, "cuda_alloc", w.PID(), append(o.flags, "--otlp-endpoint", o.scheme+"://"+receiver.GRPC, "--export-interval", "1s",
		"--metrics-listen", listen, "--metrics-nvml", "off")...)
	w.Say("go")
	time.Sleep(3 * time.Second)
	watch := startWatch(t, g)
	before, rss := watch.until(t, func() bool { return true })
	done := make(chan struct{})
	go func() {
		defer close(done)
		o.away(t, receiver)
	}()
	during, most := watch.until(t, func() bool {
		select {
		case <-done:
			return true
		default:
			return false
		}
	})
	w.summaries(t, 1)
	require.Eventually(t, func() bool { return scrape(t, listen, "otlp")["queue"] == 0 }, 90*time.Second, time.Second)
	time.Sleep(3 * time.Second) // the last rows are read: this test is not about the end of a run
	rows := w.truth(t)
	counts := scrape(t, listen, "otlp")
	g.end(t)
	requireProfiles(t, receiver.profiles(t), rows)
	require.Zero(t, counts["lost_total"])
	require.Positive(t, counts["retries_total"])
	require.Contains(t, g.stderr.String(), "the OTLP receiver did not accept data, which is kept and retried")
	require.Contains(t, g.stderr.String(), o.warning)
	t.Logf("ns per pair %.0f, then %.0f; RSS at most %d MiB, then %d; %v", before, during, rss/mib, most/mib, counts)
	require.Positive(t, during)
	require.Less(t, during, before*1.3)
	require.Less(t, most, rss+32*mib)
}

// authority signs certificates for 127.0.0.1.
type authority struct {
	path string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, path string) *authority {
	t.Helper()
	a := &authority{path: path}
	var err error
	a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "CA"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &a.key.PublicKey, a.key)
	require.NoError(t, err)
	a.cert, err = x509.ParseCertificate(der)
	require.NoError(t, err)
	writePEM(t, path, "CERTIFICATE", der)
	return a
}

// issue replaces the files of a certificate.
func (a *authority) issue(t *testing.T, certificate, key string, until time.Time) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	c := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "collector"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: until, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature}
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, &private.PublicKey, a.key)
	require.NoError(t, err)
	raw, err := x509.MarshalECPrivateKey(private)
	require.NoError(t, err)
	writePEM(t, key, "EC PRIVATE KEY", raw)
	writePEM(t, certificate, "CERTIFICATE", der)
}

func writePEM(t *testing.T, path, kind string, der []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
}
