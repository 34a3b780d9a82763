package daemon

import (
	"context"
	"io"
	"maps"
	"runtime/debug"
	"slices"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/report/condition"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/report/metrics"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/report/servicefindings"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/serve/status"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/syncer"
	"github.com/vicinity-proxy/vicinity/pkg/sanitize"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// newSync returns the component that syncs changes and repairs.
func newSync(c *common, handlers []selection.Handler, changes <-chan model.Change, repairs <-chan struct{}, o *observer) component {
	return component{run: unfailing(func(ctx context.Context) {
		p := syncer.New(c.options.Node, c.config, c.conn, handlers...)
		p.RetryMax = c.options.Settings.SyncPeriod
		p.Run(ctx, changes, repairs, o)
	})}
}

// observer reports syncs to status, metrics and the log. All methods are called by the proxy's goroutine.
type observer struct {
	*common
	stdout   io.Writer
	findings *findings
	// condition is nil if the Node's condition is not written.
	condition *condition.Writer

	synced bool // at least once
}

// Queued is called before each sync.
func (o *observer) Queued(changes syncer.Changes, at time.Time) {
	o.status.SyncQueued(at)
	o.recorder.SyncQueued(at)
	o.recorder.ChangesQueued(changes.Services, changes.EndpointSlices)
}

// Synced is called after each sync that the kernel accepted. The first one is announced on standard output, whatever
// the log level: a script may be waiting for it.
func (o *observer) Synced(report syncer.Report, started, ended time.Time) {
	took := ended.Sub(started)
	o.status.SyncSucceeded(started)
	o.count(report, took, ended)
	numbers := status.Numbers{
		Services: report.Applied, Waiting: report.Waiting, RejectedByKernel: report.RejectedTotal, Contested: report.Contested,
	}
	o.status.SyncDone(status.Sync{At: ended, Seconds: took.Seconds(), Services: report.Decided, Complete: report.Full}, numbers)
	o.reportFindings(report)
	o.log.Debug("synced", "full", report.Full, "services", report.Decided, "total", report.Applied, "took", took)
	if report.CleanupErr != nil {
		o.recorder.CleanupFailed()
		o.log.Warn("failed to delete unused entries from the kernel; retrying", "error", report.CleanupErr)
	}
	if !o.synced {
		o.synced = true
		o.condition.Set(condition.Synced)
		// The lists and the full sync leave as much garbage as live memory, and the runtime would keep it for minutes.
		go debug.FreeOSMemory()
		sanitize.Fprintf(o.stdout, "the first sync is in the kernel: node %s, Services: %d, took %s\n",
			o.options.Node, report.Applied, took.Round(time.Microsecond))
	}
}

// Failed is called after each sync that failed, with the time until the next attempt.
func (o *observer) Failed(err error, report syncer.Report, started, ended time.Time, retryIn time.Duration) {
	o.status.SyncFailed(ended, err)
	o.recorder.ObserveSync(report.Full, ended.Sub(started), err)
	o.log.Error("failed to update the kernel; the previous rules stay active", "error", err, "retryIn", retryIn)
}

// reportFindings reports the Services that the kernel rejects, and those without session affinity.
func (o *observer) reportFindings(report syncer.Report) {
	o.findings.onRejectedByKernel(report)
	o.findings.replace(sourceTables, o.affinityUnavailable(report)...)
}

// affinityUnavailableReason is the reason of the finding about a port without session affinity.
const affinityUnavailableReason = "This Service is served without session affinity: too many Services with session affinity " +
	"have more than 256 endpoints each (limits: 4,096 Services with up to 4,096 endpoints, and 256 with more)"

// affinityUnavailable returns the findings about the Services that lack session affinity, at most MaxServices of them,
// and an empty entry for each Service that no longer lacks it.
func (o *observer) affinityUnavailable(report syncer.Report) []servicefindings.ServiceFindings {
	lacksAffinity := map[model.ObjectName]bool{}
	if report.Full {
		for _, name := range o.findings.servicesWith(sourceTables) {
			lacksAffinity[name] = false
		}
	}
	maps.Copy(lacksAffinity, report.WithoutAffinity)
	var list []servicefindings.ServiceFindings
	reported := 0
	for _, name := range slices.SortedFunc(maps.Keys(lacksAffinity), model.ObjectName.Compare) {
		entry := servicefindings.ServiceFindings{Service: name}
		if lacksAffinity[name] {
			if reported++; reported > servicefindings.MaxServices {
				continue
			}
			entry.Findings = []model.Finding{
				model.Finding{Code: model.SessionAffinityIgnored, Reason: affinityUnavailableReason, Local: true}.WithObject("Service", name),
			}
		}
		list = append(list, entry)
	}
	return list
}

// processStart is when this process started. Changes that were caused earlier waited for the process, not for a sync.
var processStart = time.Now()

// count exports a report as metrics.
func (o *observer) count(report syncer.Report, took time.Duration, ended time.Time) {
	o.recorder.ObserveSync(report.Full, took, nil)
	o.recorder.SyncDone(ended, report.Full)
	for _, family := range model.Families {
		name := family.String()
		o.recorder.Add(metrics.ElementsWritten, report.Added[family], name, metrics.OperationAdd)
		o.recorder.Add(metrics.ElementsWritten, report.Deleted[family], name, metrics.OperationDelete)
		for _, cause := range report.Triggered[family] {
			if !cause.Before(processStart) {
				o.recorder.EndpointChangeProgrammed(name, ended.Sub(cause))
			}
		}
	}
	o.recorder.Set(metrics.Services, report.Applied)
	o.recorder.Set(metrics.SyncQueueDepth, report.Waiting)
	o.recorder.Set(metrics.EvacuatedNodes, report.EvacuatedTimed, metrics.EndTime)
	o.recorder.Set(metrics.EvacuatedNodes, report.EvacuatedUntimed, metrics.EndNone)
}
