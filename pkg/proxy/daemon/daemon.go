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
func newParts(ctx context.Context, c *common, table *conntrack.Conn, isLocal selection.IsLocal, stdout io.Writer) (parts, error) {
	files, err := newFiles(c)
	if err != nil {
		return nil, err
	}
	changes := make(chan model.Change)
	complete := &startupBarrier{changes: changes}
	dumps := conntrack.NewDumpScheduler(table, c.onConntrackDump)
	of, flows := newFlows(c, dumps, isLocal)
	monitor, reachability := newReachabilityMonitor(c, dumps, table, of, isLocal, complete)
	from, err := newSource(c, monitor)
	if err != nil {
		return nil, err
	}
	findings := newFindings(c, from.reporter)
	feed := &feed{common: c, complete: complete, reporter: from.reporter, findings: findings, condition: from.condition}
	mesh, err := newXDSServer(c)
	if err != nil {
		return nil, err
	}
	condition, err := newCondition(ctx, c, from.condition)
	if err != nil {
		return nil, err
	}
	disturbances, repairs := newDisturbances(c, from.reporter)
	observer := &observer{common: c, stdout: stdout, findings: findings, condition: from.condition}
	all := parts{
		flows,
		newHealthChecks(c, findings),
		{reader: servicefindings.NewCollector(findings.onDecided)},
		newCounts(c),
		newNodePorts(c),
		reachability,
		newDNS(c),
		mesh,
		newLocalhost(ctx, c, findings),
		newSecureMetrics(c, from.reviewer),
		newHealth(c),
		newObjects(c, from, feed, monitor),
		newInterfaces(c, complete),
		newAPIServers(from, complete, monitor),
		newEvents(c, from.reporter),
		condition,
		files,
		newSettings(c),
		newAccounting(c, table, dumps, of),
		newOtherProxies(c, from.reporter),
		newPartitionReporter(c, from.reporter, monitor),
		disturbances,
	}
	return append(all,
		newPages(c, all.summarize, from, findings),
		newSync(c, all.handlers(), changes, repairs, observer)), nil
}
