package daemon

import (
	"context"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/accounting"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/metrics"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/nft"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/owners"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/sysctl"
)

// newAccounting returns what counts traffic; nil if counting is off, which then costs nothing.
func (d *daemon) newAccounting(table *conntrack.Conn, looks conntrack.Table, of *owners.Reader) *accounting.Accounting {
	if d.options.Account == nil {
		return nil
	}
	accounts := accounting.New(*d.options.Account, of, accounting.Kernel{
		Table: looks, Subscribe: table.Subscribe, CountBytes: d.countBytes, TellsEnds: tellsEnds,
	}, d.log)
	exposeAccounts(d.recorder, accounts)
	return accounts
}

// account counts traffic, if that is asked for.
func (d *daemon) account(ctx context.Context) error {
	if d.accounts == nil {
		return nil
	}
	return d.accounts.Run(ctx)
}

// countBytes has conntrack count bytes. Where its setting may not be written there is another way.
func (d *daemon) countBytes() error {
	for _, result := range sysctl.Apply(sysctl.Root, sysctl.ConntrackBytes) {
		if result.Outcome == sysctl.Unmet {
			return nft.CountBytes()
		}
		logSysctl(d.log, result)
	}
	return nil
}

// tellsEnds reports whether conntrack reports connections that end.
func tellsEnds() bool {
	for _, result := range sysctl.Check(sysctl.Root, sysctl.ConntrackEvents) {
		return result.Outcome == sysctl.Met || result.Err != nil
	}
	return true
}

// exposeAccounts makes the counts available as metrics.
func exposeAccounts(recorder *metrics.Recorder, accounts *accounting.Accounting) {
	type add = func(value float64, labels ...string)
	ledger := accounts.Ledger
	recorder.AskFor(metrics.Connections, func(add add) {
		ledger.Node(func(row accounting.Row) { add(float64(row.Connections), row.Locality.String(), row.Tier) })
	})
	recorder.AskFor(metrics.Unanswered, func(add add) {
		ledger.Node(func(row accounting.Row) { add(float64(row.Unanswered), row.Locality.String(), row.Tier) })
	})
	recorder.AskFor(metrics.Traffic, func(add add) {
		ledger.Node(func(row accounting.Row) { addTraffic(add, row.Traffic, row.Locality.String(), row.Tier) })
	})
	recorder.AskFor(metrics.ZoneTraffic, func(add add) {
		ledger.Zones(func(own, endpoint string, traffic accounting.Traffic) { addTraffic(add, traffic, own, endpoint) })
	})
	recorder.AskFor(metrics.ServiceConnections, func(add add) {
		ledger.Services(func(row accounting.Row) { add(float64(row.Connections), serviceLabels(row)...) })
	})
	recorder.AskFor(metrics.ServiceTraffic, func(add add) {
		ledger.Services(func(row accounting.Row) { addTraffic(add, row.Traffic, serviceLabels(row)...) })
	})
	recorder.AskFor(metrics.Overruns, func(add add) { add(float64(accounts.Overruns())) })
	recorder.AskFor(metrics.FlowsTracked, func(add add) { add(float64(ledger.State().Followed)) })
	recorder.AskFor(metrics.FlowsLeftOut, func(add add) { add(float64(ledger.State().NotFollowed)) })
	recorder.AskFor(metrics.FlowsUnowned, func(add add) { add(float64(ledger.State().Unowned)) })
	recorder.AskFor(metrics.ServicesLeftOut, func(add add) { add(float64(ledger.State().LeftOut)) })
}

func addTraffic(add func(value float64, labels ...string), traffic accounting.Traffic, labels ...string) {
	add(float64(traffic.Sent), append(slices.Clip(labels), metrics.DirectionSent)...)
	add(float64(traffic.Received), append(slices.Clip(labels), metrics.DirectionReceived)...)
}

func serviceLabels(row accounting.Row) []string {
	return []string{row.Service.Namespace, row.Service.Name, row.Locality.String(), row.Tier}
}
