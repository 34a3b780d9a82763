package daemon

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/cli"
	"github.com/vicinity-proxy/vicinity/pkg/filewatch"
	"github.com/vicinity-proxy/vicinity/pkg/kube"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/accounting"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/asked"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/authorization"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/condition"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/counts"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/dns"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/flows"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/interfaces"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/localhost"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/metrics"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/nft"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/servicefindings"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/servicehealth"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/cluster"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/folder"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/status"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
	"github.com/vicinity-proxy/vicinity/pkg/wake"
)

// daemon holds the parts of a running proxy.
type daemon struct {
	options  *Options
	config   ruleset.Config
	conn     *nft.Conn
	flows    *flows.Reconciler
	log      *slog.Logger
	status   *status.Status
	recorder *metrics.Recorder
	observer *observer
	objects  objects
	dialled  *kube.Dialled // nil without an API server
	ask      authorization.Ask
	reporter *eventReporter
	// condition is nil unless the Node's condition should say when its Services work.
	condition *condition.Writer
	findings  *findings
	feed      *feed
	// readers each use the decisions in force for a purpose of their own.
	readers []selection.Reader
	checks  *servicehealth.Reader
	names   *dns.Table // nil if DNS is not answered
	mesh    *mesh      // nil if xDS is not answered
	// watch finds out which nodes do not answer; nil if no node is dialled.
	watch *watch
	// localhost serves node ports on loopback; nil if they are not.
	localhost *localhost.Server
	accounts  *accounting.Accounting // nil unless traffic is counted
	settings  *kernelSettings
	asked     *asked.Counter // nil unless the page with its counts is served
	files     []filewatch.File

	changes chan model.Change
	// disturbed holds one disturbance: a second one before the repair is repaired by the same sync. They reach the proxy
	// as repairs, at a measured pace.
	disturbed wake.Signal
	repairs   chan struct{}
	// suspected holds the suspicion of a disturbance: something may have happened to our tables that the kernel could not
	// report.
	suspected wake.Signal
}

// reach is how the daemon reaches the kernel: nftables, conntrack, and questions about addresses.
type reach struct {
	conn    *nft.Conn
	table   *conntrack.Conn
	isLocal selection.IsLocal
}

func newDaemon(options *Options, to reach, stdout io.Writer, log *slog.Logger) (*daemon, error) {
	conn := to.conn
	config := options.Settings.Tables(conn.Families())
	recorder := metrics.NewRecorder()
	files, err := options.configurationFiles(log)
	if err != nil {
		return nil, err
	}
	d := &daemon{
		files: files, config: config, options: options, conn: conn, log: log, recorder: recorder,
		status:  &status.Status{PendingTimeout: 2 * options.Settings.SyncPeriod, Answered: recorder.HealthAnswered},
		changes: make(chan model.Change), disturbed: wake.NewSignal(), suspected: wake.NewSignal(), repairs: make(chan struct{}),
	}
	if err := d.connect(); err != nil {
		return nil, err
	}
	d.findings = newFindings(log, d.status, recorder, d.reporter)
	d.checks = servicehealth.NewReader()
	looks := conntrack.NewLooks(to.table, d.looked)
	loopback := loopbackOf(config)
	of := d.newOwners(looks, to.isLocal)
	d.readers = []selection.Reader{
		of,
		d.checks,
		servicefindings.NewReader(d.findings.decided),
		counts.NewReader(func(now counts.Counts) { setCounts(recorder, now) }),
		&nodePorts{log: log, families: config.Families, loopback: slices.SortedFunc(maps.Values(loopback), netip.Addr.Compare)},
	}
	if d.watch = d.newWatch(looks, to.table, of); d.watch != nil {
		d.readers = append(d.readers, d.watch.served)
	}
	if options.DNSAddress.IsValid() {
		d.names = &dns.Table{Zone: d.options.DNSZone}
		d.readers = append(d.readers, d.names)
	}
	if d.mesh, err = newMesh(options, recorder, log); err != nil {
		return nil, err
	}
	if d.mesh != nil {
		d.readers = append(d.readers, d.mesh.table)
	}
	if len(loopback) > 0 {
		d.localhost = newLocalhost(loopback, localhostObserver{recorder, d.findings}, log)
		d.readers = append(d.readers, d.localhost)
	}
	d.accounts = d.newAccounting(to.table, looks, of)
	d.newAsked()
	d.settings = newKernelSettings(log, &options.Settings, d.accounts != nil, conn.Families())
	d.settings.looked = d.settingsLookedAt
	d.settings.look()
	d.observer = &observer{
		node: options.Node, stdout: stdout, log: log, status: d.status, recorder: recorder, findings: d.findings,
		names: d.names, condition: d.condition,
	}
	if options.Manifests != "" {
		d.topologyFrom(model.FromNodes) // manifests have no other source of where nodes are
	}
	recorder.Set(metrics.BuildInfo, 1, options.Build.Version, options.Build.GoVersion)
	d.feed = newFeed(options.Node, config, d.changes, log, d.status, d.reporter, d.findings)
	d.feed.condition = d.condition
	return d, nil
}

// connect finds where the objects come from, and what reports Events about them.
func (d *daemon) connect() error {
	if d.options.Manifests != "" {
		d.objects = manifests{folder.NewManifests(d.options.Manifests, d.options.View, d.log)}
		return nil
	}
	d.recorder.CountAPIRequests()
	c, err := d.options.connect(cluster.Options{
		Log: d.log, Interrupted: d.interrupted, Resumed: d.resumed, TopologyFrom: d.topologyFrom,
		DemandRenewed: d.recorder.DemandRenewed, ProxiesAt: d.proxiesAt(),
	})
	if err != nil {
		return err
	}
	d.recorder.AskFor(metrics.EventsDropped, func(add metrics.Adder) { add(float64(c.recorder.Dropped())) })
	d.objects, d.dialled, d.ask, d.condition = c.cluster, c.dialled, c.ask, c.condition
	if d.condition != nil {
		d.condition.Failing = d.recorder.NodeConditionFailing
	}
	d.reporter = &eventReporter{
		node: d.options.Node, version: d.options.Build.Version, recorder: c.recorder, cluster: c.cluster,
	}
	return nil
}

// interrupted reports that the API server sends no changes of a resource. What it sent last stays in force, so nothing
// is wrong yet.
func (d *daemon) interrupted(resource string, since time.Time, err error) {
	d.status.WatchInterrupted(resource, since, err.Error())
	d.recorder.WatchInterrupted(resource, since)
}

func (d *daemon) resumed(resource string) {
	d.status.WatchResumed(resource)
	d.recorder.WatchResumed(resource)
	if resource == "nodes/"+d.options.Node { // it may be a new Node of the same name
		d.condition.LookAgain()
	}
}

// topologyFrom reports the resource from which we learn where other nodes are.
func (d *daemon) topologyFrom(resource string) {
	d.recorder.TopologyFrom(resource)
	d.observer.syncs.TopologyFrom(resource)
}

func (d *daemon) isHealthy() bool { return d.status.Verdict(time.Now()).Healthy }

// run lets the parts work side by side until ctx ends or one of them fails.
func (d *daemon) run(ctx context.Context) error {
	d.countRejected(ctx)
	return cli.Together(ctx,
		func(ctx context.Context) error {
			return d.listenAndServe(ctx, "--healthz-bind-address", d.options.Settings.HealthzBindAddress, nil, d.status.Handler(time.Now))
		},
		func(ctx context.Context) error {
			return d.listenAndServe(ctx, "--metrics-bind-address", d.options.Settings.MetricsBindAddress, nil, d.pages())
		},
		d.serveMetricsSecurely,
		func(ctx context.Context) error {
			return d.objects.Run(ctx, func(update convert.Update) {
				if d.options.Manifests != "" {
					d.watch.nodesChanged(update.Change.Nodes)
				}
				d.feed.deliver(ctx, update)
			})
		},
		func(ctx context.Context) error {
			return interfaces.Watch(ctx, d.log, func(addrs []netip.Addr) { d.feed.deliverAddrs(ctx, addrs) })
		},
		d.watchAPIServers,
		d.reporter.run,
		d.condition.Run,
		d.watchFiles,
		d.answerDNS,
		d.mesh.run,
		d.serveLocalhost,
		d.settings.hold,
		d.account,
		d.countAsked,
		d.lookForOtherProxies,
		d.serveHealthChecks,
		func(ctx context.Context) error {
			d.watch.run(ctx, d.feed.deliverLater)
			return nil
		},
		d.reportParted,
		func(ctx context.Context) error {
			d.flows.Run(ctx, d.lookedAtFlows)
			return nil
		},
		func(ctx context.Context) error { return d.conn.Watch(ctx, d.repair) },
		func(ctx context.Context) error { return pace(ctx, repairInterval, d.disturbed, d.repairs) },
		func(ctx context.Context) error {
			return pace(ctx, d.options.Settings.SyncPeriod, d.suspected, d.repairs)
		},
		func(ctx context.Context) error {
			p := proxy.New(d.options.Node, d.config, d.conn, d.readers...)
			p.RetryMax = d.options.Settings.SyncPeriod
			p.Run(ctx, d.changes, d.repairs, d.observer)
			return nil
		},
	)
}

// answerDNS answers for headless Services, if that is asked for.
func (d *daemon) answerDNS(ctx context.Context) error {
	if d.names == nil {
		return nil
	}
	server := dns.Server{Table: d.names, Log: d.log, Answered: func(result dns.Result) {
		d.recorder.Add(metrics.DNSRequests, 1, result.Type, string(result.Outcome))
	}}
	return server.Run(ctx, d.options.DNSAddress)
}

// watchAPIServers passes on the address at which the API server is reached, if it is known, and again whenever it
// changes.
func (d *daemon) watchAPIServers(ctx context.Context) error {
	if d.dialled == nil {
		return nil
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-d.dialled.Changed():
			d.feed.deliverLater(ctx, model.Change{APIServers: d.dialled.Addrs()})
			d.watch.serversAt(d.dialled.Addrs())
		}
	}
}

// repair asks for a complete sync after another process changed our tables. While another process keeps changing other
// tables, each complete sync raises the suspicion that something was missed while it was sent: so suspicion alone
// causes only one complete sync in a sync period.
func (d *daemon) repair(change nft.ForeignChange) {
	if change.Lost {
		d.log.Info("changes of nftables may have been missed; our tables will be rewritten soon")
		d.suspected.Send()
		return
	}
	d.log.Warn("another process changed our tables; repairing them",
		"process", change.Process, "pid", change.PID, "families", fmt.Sprint(change.Families))
	for _, family := range change.Families {
		d.recorder.ForeignChange(family.String())
	}
	d.reporter.foreignChange(change)
	d.disturbed.Send()
}
