package daemon

import (
	"context"
	"io"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/report/servicefindings"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// newComponents returns the components of a daemon. A component's constructor takes the other components that it uses.
func newComponents(ctx context.Context, c *common, table *conntrack.Conn, isLocal selection.IsLocal, stdout io.Writer) (components, error) {
	files, err := newFiles(c)
	if err != nil {
		return nil, err
	}
	changes := make(chan model.Change)
	barrier := &startupBarrier{changes: changes}
	dumps := conntrack.NewDumpScheduler(table, c.onConntrackDump)
	index, flows := newConntrackCleanup(c, dumps, isLocal)
	monitor, reachability := newReachabilityMonitor(c, dumps, table, index, isLocal, barrier)
	src, err := newSource(c, monitor)
	if err != nil {
		return nil, err
	}
	findings := newFindings(c, src.reporter)
	feed := &feed{common: c, barrier: barrier, reporter: src.reporter, findings: findings, condition: src.condition}
	xdsServer, err := newXDSServer(c)
	if err != nil {
		return nil, err
	}
	condition, err := newCondition(ctx, c, src.condition)
	if err != nil {
		return nil, err
	}
	driftDetector, repairs := newDriftDetector(c, src.reporter)
	observer := &observer{common: c, stdout: stdout, findings: findings, condition: src.condition}
	all := components{
		flows,
		newHealthChecks(c, findings),
		{handler: servicefindings.NewCollector(findings.onDecided)},
		newPortCounts(c),
		newNodePorts(c),
		reachability,
		newDNS(c),
		xdsServer,
		newLocalhost(ctx, c, findings),
		newSecureMetrics(c, src.reviewer, dumps, index),
		newHealth(c),
		newObjects(c, src, feed, monitor),
		newInterfaces(c, barrier),
		newAPIServers(src, barrier, monitor),
		newEvents(c, src.reporter),
		condition,
		files,
		newSettings(c),
		newAccounting(c, table, dumps, index),
		newOtherProxies(c, src.reporter),
		newPartitionReporter(c, src.reporter, monitor),
		driftDetector,
	}
	return append(all,
		newPages(c, all.summarize, src, findings),
		newSync(c, all.handlers(), changes, repairs, observer)), nil
}
