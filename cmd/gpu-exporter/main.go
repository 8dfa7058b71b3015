// SPDX-License-Identifier: Apache-2.0

// Command gpu-exporter collects from a cluster whose daemons are Inspektor Gadget's own:
// it attaches to the gadget instances on all nodes, and sends their data to Pyroscope,
// OpenTelemetry receivers and Prometheus, as ig-gpu and ig-gpu-daemon do by themselves
// (docs/reference/exporter.md).
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/docker/go-units"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/gadget-service/api"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/k8sutil"
	log "github.com/sirupsen/logrus"
	"github.com/spf13/pflag"
	_ "golang.org/x/crypto/x509roots/fallback" // its image has no certificates

	"github.com/gpu-gadgets/gpu-gadgets/cmd/gpu-exporter/internal/feed"
	"github.com/gpu-gadgets/gpu-gadgets/cmd/gpu-exporter/internal/follow"
	"github.com/gpu-gadgets/gpu-gadgets/cmd/gpu-exporter/internal/shard"
	"github.com/gpu-gadgets/gpu-gadgets/cmd/gpu-exporter/internal/targets"
	"github.com/gpu-gadgets/gpu-gadgets/cmd/internal/console"
	"github.com/gpu-gadgets/gpu-gadgets/internal/export/exporters"
	"github.com/gpu-gadgets/gpu-gadgets/internal/format/duration"
	"github.com/gpu-gadgets/gpu-gadgets/internal/profile"
	"github.com/gpu-gadgets/gpu-gadgets/operators/judge/ranks"
	"github.com/gpu-gadgets/gpu-gadgets/operators/send/export"
	"github.com/gpu-gadgets/gpu-gadgets/operators/send/metrics"
)

// flushTimeout bounds the shutdown if a receiver is unreachable.
const flushTimeout = 10 * time.Second

type options struct {
	addresses, instances  []string
	kubeconfig, namespace string
	selector              string
	port                  uint16
	tls                   targets.TLS
	verbose               bool
	stale                 time.Duration
	hang, straggler       time.Duration
	hangs, rankMetrics    bool
	shard                 shard.Shard
	limit                 int64              // bytes per second of a daemon
	authorize, audience   string             // of scrapes
	values                map[string]*string // of the exports' parameters, by flag
}

func main() {
	err := run(os.Args[1:])
	if errors.Is(err, pflag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "Error: %s\n", strings.Join(strings.Fields(err.Error()), " "))
		os.Exit(1)
	}
}

func run(args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	console.CleanLogs(log.StandardLogger())
	if o.verbose {
		log.SetLevel(log.DebugLevel)
	}
	source, err := o.source()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()

	values := o.params(metrics.PublishParams())
	authorizer, err := o.authorizer(values)
	if err != nil {
		return err
	}
	queues, store := &exporters.Registry{}, &metrics.Store{}
	cfg := follow.Config{Instances: o.instances, Stale: o.stale, Shard: o.shard, Limit: o.limit, Stats: &follow.Stats{}, Log: log.StandardLogger()}
	sender, err := export.NewSender(o.params(export.Params()), export.SenderConfig{
		Log: log.StandardLogger(), Logs: true, Register: export.Publish(queues),
	})
	if err != nil {
		return err
	}
	if sender.Enabled() {
		cfg.Sender = feed.Sender(sender)
		sender.Start(nil)
	}
	progress := &ranks.Store{}
	hasMetrics := values["metrics-listen"] != "" || values["metrics-otlp-endpoint"] != ""
	if o.shard.Judges() {
		o.rankMetrics = o.rankMetrics && hasMetrics
		if cfg.Ranks, err = o.judge(progress, sender); err != nil {
			return err
		}
		cfg.Stats.Ranks = cfg.Ranks
	}
	if hasMetrics {
		cfg.Store = store
		end, err := publish(values, metrics.Publication{Store: store, Queues: queues, Sources: []metrics.Source{progress, cfg.Stats},
			Warn: func(text string) { log.Warn(text) }, Handler: authorizer})
		if err != nil {
			return err
		}
		defer end()
	}
	if cfg.Sender == nil && cfg.Store == nil && !o.hangs {
		return errors.New("nothing to do: set a destination: --pyroscope-url, --otlp-endpoint, --metrics-listen or --metrics-otlp-endpoint; or --hangs")
	}
	var judging sync.WaitGroup
	if cfg.Ranks != nil {
		judging.Go(func() { cfg.Ranks.Run(ctx) })
	}
	err = follow.Run(ctx, source, cfg)
	stop()
	judging.Wait()
	if cfg.Ranks != nil && cfg.Ranks.Refused() > 0 {
		log.Warnf("%d observations of ranks were not judged, or not in whole: too many ranks or peers, or contradictions", cfg.Ranks.Refused())
	}
	sender.Close(flushTimeout)
	return err
}

// judge of the ranks of all nodes.
func (o *options) judge(progress *ranks.Store, sender *export.Sender) (*ranks.Joiner, error) {
	return ranks.NewJoiner(ranks.JoinConfig{Hang: o.hang, Straggler: o.straggler, Store: progress, OnlyVerdicts: !o.rankMetrics, Report: func(h profile.Hang) {
		printHang(os.Stdout, h)
		if sender.Enabled() {
			sender.Hang(h)
		}
	}})
}

// publish serves and pushes metrics until the returned function is called.
func publish(values api.ParamValues, p metrics.Publication) (func(), error) {
	at, end, err := metrics.Publish(values, p)
	if err != nil {
		return nil, err
	}
	if at != nil {
		scheme := "http"
		if values["metrics-listen-cert"] != "" {
			scheme = "https"
		}
		log.Infof("metrics at %s://%s/metrics", scheme, at)
	}
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
		defer cancel()
		if err := end(ctx); err != nil {
			log.Warnf("metrics: %v", err)
		}
	}, nil
}

// printHang prints a verdict on ranks of NCCL, human-readable.
func printHang(to io.Writer, h profile.Hang) {
	fmt.Fprintf(to, "%s %-7s %-9s %s\n", h.Time.UTC().Format("2006-01-02T15:04:05.000Z"), h.Event, h.Reason, h.Text)
}

func parse(args []string) (*options, error) {
	o := &options{values: map[string]*string{}}
	flags := pflag.NewFlagSet("gpu-exporter", pflag.ContinueOnError)
	flags.SortFlags = false
	flags.StringSliceVar(&o.addresses, "address", nil, "Daemons to collect from instead of those of a Kubernetes cluster: unix:///PATH or tcp://HOST:PORT, with NODE= before it for a name other than the host's")
	flags.StringSliceVar(&o.instances, "instance", nil, "Names or ids of the gadget instances to follow (default: all that have rows)")
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "Kubernetes configuration (default: that of this pod, then $KUBECONFIG, then ~/.kube/config)")
	flags.StringVar(&o.namespace, "gadget-namespace", "gadget", "Namespace of the gadget pods")
	flags.StringVar(&o.selector, "gadget-selector", "k8s-app=gadget", "Labels of the gadget pods")
	flags.Uint16Var(&o.port, "gadget-port", api.GadgetServicePort, "Port of the daemon in the gadget pods")
	flags.StringVar(&o.tls.CAFile, "tls-ca-file", "", "CA certificates to verify daemons at tcp://; with --tls-cert-file and --tls-key-file")
	flags.StringVar(&o.tls.CertFile, "tls-cert-file", "", "Client certificate for daemons at tcp://")
	flags.StringVar(&o.tls.KeyFile, "tls-key-file", "", "Its key")
	for _, p := range append(export.Params(), metrics.PublishParams()...) {
		value := p.DefaultValue
		o.values[p.Key] = &value
		flags.StringVar(&value, p.Key, p.DefaultValue, p.Description)
		if p.TypeHint == api.TypeBool {
			flags.Lookup(p.Key).NoOptDefVal = "true"
		}
	}
	flags.StringVar(&o.authorize, "metrics-listen-authorize", "", "kubernetes: scrapers must send a token of the cluster (Authorization: Bearer TOKEN), and get the series of those namespaces in which RBAC allows them to get metrics.gpu-gadgets.github.io")
	flags.StringVar(&o.audience, "metrics-listen-audience", "", "Audience that these tokens must have been issued for (default: that of the API server)")
	o.stale, o.hang, o.straggler = time.Minute, 30*time.Second, 100*time.Millisecond
	flags.Var((*duration.Value)(&o.stale), "metrics-stale", "How long to keep the metrics of a node that does not respond")
	flags.BoolVar(&o.hangs, "hangs", false, "Run even if nothing is exported: ranks that keep collectives of NCCL waiting are always reported on stdout")
	flags.Var((*duration.Value)(&o.hang), "hang", "Report the missing rank when ranks on any node have waited this long in a collective of NCCL")
	flags.Var((*duration.Value)(&o.straggler), "straggler", "Report a rank as a straggler if it arrives this much later than the others, at the median; must exceed the differences of the nodes' clocks and connections")
	flags.BoolVar(&o.rankMetrics, "rank-metrics", true, "Metrics of the progress of each rank of NCCL, a dozen series for each; false: of verdicts only")
	part := flags.String("shard", "0/1", "Collect from this part of the nodes: INDEX/SHARDS, such as 0/4, where all four run. The first one also judges the ranks of NCCL on all nodes")
	limit := flags.String("node-limit", "64MiB", "Cut off a daemon that sends more than this per second")
	flags.BoolVar(&o.verbose, "verbose", false, "Say more")
	flags.Usage = func() {
		fmt.Printf("Collect what gadget instances find on all nodes\n\nUsage:\n  gpu-exporter [flags]\n\nFlags:\n%s", flags.FlagUsages())
	}
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	var err error
	if o.shard, err = shard.Parse(*part); err != nil {
		return nil, fmt.Errorf("--shard: %w", err)
	}
	if o.limit, err = units.RAMInBytes(*limit); err != nil || o.limit < 1<<20 || o.limit > 1<<30 {
		return nil, fmt.Errorf("--node-limit: want a size from 1MiB to 1GiB, not %q", *limit)
	}
	if o.hang <= 0 || o.straggler <= 0 {
		return nil, errors.New("--hang and --straggler want a duration above 0")
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	return o, nil
}

func (o *options) params(all api.Params) api.ParamValues {
	values := api.ParamValues{}
	for _, p := range all {
		values[p.Key] = *o.values[p.Key]
	}
	return values
}

// source is where the daemons are.
func (o *options) source() (targets.Source, error) {
	if len(o.addresses) > 0 {
		return targets.ParseAddresses(o.addresses, o.tls)
	}
	config, err := k8sutil.NewKubeConfig(o.kubeconfig, "gpu-exporter")
	if err != nil {
		return nil, fmt.Errorf("no --address, and no cluster to find daemons in: %w", err)
	}
	return targets.Kubernetes{Config: config, Namespace: o.namespace, Selector: o.selector, Port: o.port}, nil
}
