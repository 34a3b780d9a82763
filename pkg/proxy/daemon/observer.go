package daemon

import (
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/netip"
	"runtime/debug"
	"slices"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/printable"
	"github.com/vicinity-proxy/vicinity/pkg/proxy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/condition"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/dns"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/metrics"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/status"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// observer passes on what the proxy does: to health, metrics and the log. Only FlowsLookedAt is called by another
// goroutine than the proxy's.
type observer struct {
	node     string
	stdout   io.Writer
	log      *slog.Logger
	status   *status.Status
	recorder *metrics.Recorder
	checks   *healthChecks
	findings *findings
	names    *dns.Table   // nil if DNS is not answered
	loopback []netip.Addr // on which the process itself serves node ports
	// condition is nil unless the Node is to say when its Services work.
	condition *condition.Writer

	refused refusals
	syncs   status.Syncs

	synced bool // at least once
	levels levels
	// nodePorts are the addresses on which node ports are served, as they were logged last.
	nodePorts []netip.Addr
}

// Queued is called when something has to be synced, before the sync.
func (o *observer) Queued(changes proxy.Changes, at time.Time) {
	o.status.SyncQueued(at)
	o.recorder.SyncQueued(at)
	o.recorder.ChangesQueued(changes.Services, changes.EndpointSlices)
}

// Synced is called after each sync that the kernel accepted. The first one is announced on standard output, whatever
// the log level: a script may be waiting for it.
func (o *observer) Synced(report proxy.Report, started, ended time.Time) {
	took := ended.Sub(started)
	o.status.SyncSucceeded(started)
	o.count(report, took, ended)
	numbers := status.Numbers{
		Services: report.Total, Waiting: report.Waiting, RefusedByKernel: report.RefusedTotal, Contested: report.Contested,
	}
	if o.names != nil {
		numbers.DNSServices = o.names.Len()
		o.recorder.Set(metrics.DNSServices, numbers.DNSServices)
	}
	o.syncs.Done(status.Sync{At: ended, Seconds: took.Seconds(), Services: report.Services, Complete: report.Complete}, numbers)
	o.checks.follow(report)
	o.reportFound(report)
	o.reportNodePorts(slices.Concat(report.Surroundings.NodePortAddrs, o.loopback))
	o.log.Debug("synced", "complete", report.Complete, "services", report.Services, "total", report.Total, "took", took)
	if report.Unswept != nil {
		o.recorder.SweepFailed()
		o.log.Warn("unused entries are still in the kernel; trying again", "error", report.Unswept)
	}
	if report.Unrecalled != nil {
		o.log.Warn("UDP flows of Services that were deleted or changed while no proxy ran may go on", "error", report.Unrecalled)
	}
	if !o.synced {
		o.synced = true
		o.condition.Say(condition.Synced)
		// Lists and the sync of everything leave garbage as large as what stays, and the runtime would keep it for minutes.
		go debug.FreeOSMemory()
		printable.Fprintf(o.stdout, "the first sync is in the kernel: node %s, Services: %d, took %s\n",
			o.node, report.Total, took.Round(time.Microsecond))
	}
}

// Failed is called after each sync that failed, with the time until the next try.
func (o *observer) Failed(err error, report proxy.Report, started, ended time.Time, retryIn time.Duration) {
	o.status.SyncFailed(ended, err)
	o.syncs.Failed()
	o.recorder.ObserveSync(report.Complete, ended.Sub(started), err)
	o.log.Error("the kernel was not brought up to date; what was in force stays in force", "error", err, "retry-in", retryIn)
}

// reportFound tells what is found of Services by a sync, and by the kernel.
func (o *observer) reportFound(report proxy.Report) {
	o.refused.update(report)
	o.findings.replace(syncs, report.Found...)
	refused := make([]proxy.Found, 0, len(report.Refused)+len(report.NoLongerRefused))
	for _, service := range report.NoLongerRefused {
		refused = append(refused, proxy.Found{Service: service})
	}
	for _, one := range report.Refused {
		refused = append(refused, proxy.Found{Service: one.Service, Findings: []model.Finding{one.Finding()}})
	}
	o.findings.replace(kernel, refused...)
}

// reportNodePorts logs where node ports are served whenever that changes, unless it is everywhere. Only this log shows
// that they are served nowhere, as when the address in the Node object is that of a NAT before the machine.
func (o *observer) reportNodePorts(addrs []netip.Addr) {
	if o.synced && slices.Equal(addrs, o.nodePorts) || o.checks.servesAll() {
		return
	}
	o.nodePorts = addrs
	if len(addrs) == 0 {
		o.log.Warn("node ports are served on no address: none of those that --nodeport-addresses chooses is on an interface")
		return
	}
	o.log.Info("node ports are served", "addresses", fmt.Sprint(addrs))
}

// FlowsLookedAt is called after UDP flows were looked at, with what that did in each family, and why some may be left.
func (o *observer) FlowsLookedAt(passes map[model.Family]conntrack.Pass, err error) {
	for family, pass := range passes {
		o.recorder.Add(metrics.FlowsEnded, pass.Ended, family.String())
		if pass.Took > 0 { // the look succeeded
			o.recorder.Observe(metrics.FlowsDuration, pass.Took, family.String())
		}
	}
	if err != nil {
		o.log.Warn("some UDP flows may go on to endpoints that are gone; trying again", "error", err)
	}
}

// began is when this process did. What caused a change before that waited for a process, not for its work.
var began = time.Now()

// count hands what a sync did to metrics, in the words of metrics.
func (o *observer) count(report proxy.Report, took time.Duration, ended time.Time) {
	o.recorder.ObserveSync(report.Complete, took, nil)
	o.recorder.SyncDone(ended, report.Complete, report.Services)
	for _, family := range model.Families {
		name := family.String()
		o.recorder.Add(metrics.ElementsWritten, report.Added[family], name, metrics.OperationAdd)
		o.recorder.Add(metrics.ElementsWritten, report.Deleted[family], name, metrics.OperationDelete)
		for _, cause := range report.Triggered[family] {
			if !cause.Before(began) {
				o.recorder.Programmed(name, ended.Sub(cause))
			}
		}
	}
	if now := levelsOf(report); !o.synced || !now.equal(o.levels) {
		o.levels = now
		o.setLevels(now)
	}
}

// levels are how many there are of what a sync reports. Most syncs change none of them.
type levels struct {
	services, contested, refused, waiting int
	evacuatedTimed, evacuatedOpen         int

	ports   map[model.Family]int
	reasons map[proxy.PortReason]int
	shares  selection.Shares
}

func levelsOf(report proxy.Report) levels {
	return levels{
		report.Total, report.Contested, report.RefusedTotal, report.Waiting, report.EvacuatedTimed, report.EvacuatedOpen,
		report.Ports, report.Reasons, report.Shares,
	}
}

func (l levels) equal(other levels) bool {
	return l.services == other.services && l.contested == other.contested && l.refused == other.refused &&
		l.waiting == other.waiting && l.evacuatedTimed == other.evacuatedTimed && l.evacuatedOpen == other.evacuatedOpen &&
		l.shares == other.shares && maps.Equal(l.ports, other.ports) && maps.Equal(l.reasons, other.reasons)
}

func (o *observer) setLevels(now levels) {
	o.recorder.Set(metrics.Services, now.services)
	o.recorder.Set(metrics.FrontendsContested, now.contested)
	o.recorder.Set(metrics.ServicesRefused, now.refused)
	o.recorder.Set(metrics.ServicesWaiting, now.waiting)
	o.recorder.ServicePortsByReason(portReasons(now.reasons))
	o.recorder.Set(metrics.EvacuatedNodes, now.evacuatedTimed, metrics.EndTime)
	o.recorder.Set(metrics.EvacuatedNodes, now.evacuatedOpen, metrics.EndNone)
	o.recorder.Set(metrics.BoundedSlots, now.shares.Slots)
	o.recorder.ExpectedTraffic(now.shares.Ratios())
	for _, family := range model.Families {
		name := family.String()
		o.recorder.Set(metrics.ServicePorts, now.ports[family], name)
		for _, external := range []bool{false, true} {
			none := proxy.PortReason{Family: family, External: external, Code: selection.NoneOnThisNode}
			o.recorder.Set(metrics.NoLocalEndpoints, now.reasons[none], name, policyOf(external))
		}
	}
}

func portReasons(counts map[proxy.PortReason]int) map[metrics.PortReason]int {
	byReason := make(map[metrics.PortReason]int, len(counts))
	for reason, n := range counts {
		byReason[metrics.PortReason{
			Family: reason.Family.String(), TrafficPolicy: policyOf(reason.External), Reason: string(reason.Code),
		}] = n
	}
	return byReason
}

func policyOf(external bool) string {
	if external {
		return metrics.PolicyExternal
	}
	return metrics.PolicyInternal
}
