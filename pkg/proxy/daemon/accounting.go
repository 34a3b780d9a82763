package daemon

import (
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/report/metrics"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/traffic/accounting"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/traffic/serviceindex"
)

// newAccounting returns the component that counts traffic; it is empty if accounting is off.
func newAccounting(c *common, table *conntrack.Conn, dumps conntrack.Table, index *serviceindex.Index) component {
	if c.options.Account == nil {
		return component{}
	}
	accounts := accounting.New(*c.options.Account, index, accounting.Kernel{
		Table: dumps, Subscribe: table.Subscribe,
	}, c.log)
	registerAccounting(c.recorder, accounts)
	return component{run: accounts.Run}
}

// registerAccounting exports the counts as metrics.
func registerAccounting(recorder *metrics.Recorder, accounts *accounting.Accounting) {
	counters := accounts.Counters
	recorder.CollectFrom(metrics.Connections, func(add metrics.Add) {
		counters.Node(func(row accounting.Row) {
			labels := slices.Clip([]string{row.Proximity.String(), row.Tier})
			add(float64(row.Connections), append(labels, metrics.OutcomeReplied)...)
			add(float64(row.Refused), append(labels, metrics.OutcomeRefused)...)
			add(float64(row.Unreplied), append(labels, metrics.OutcomeUnreplied)...)
		})
	})
	recorder.CollectFrom(metrics.Traffic, func(add metrics.Add) {
		counters.Node(func(row accounting.Row) { addTraffic(add, row.Traffic, row.Proximity.String(), row.Tier) })
	})
	recorder.CollectFrom(metrics.ZoneTraffic, func(add metrics.Add) {
		counters.Zones(func(localZone, endpointZone string, traffic accounting.Traffic) {
			addTraffic(add, traffic, localZone, endpointZone)
		})
	})
	recorder.CollectFrom(metrics.ServiceConnections, func(add metrics.Add) {
		counters.Services(func(row accounting.Row) {
			labels := slices.Clip(serviceLabels(row))
			add(float64(row.Connections), append(labels, metrics.OutcomeReplied)...)
			if row.Refused > 0 { // most Services never have any; the series is created with the first
				add(float64(row.Refused), append(labels, metrics.OutcomeRefused)...)
			}
			if row.Unreplied > 0 {
				add(float64(row.Unreplied), append(labels, metrics.OutcomeUnreplied)...)
			}
		})
	})
	recorder.CollectFrom(metrics.ServiceTraffic, func(add metrics.Add) {
		counters.Services(func(row accounting.Row) { addTraffic(add, row.Traffic, serviceLabels(row)...) })
	})
	recorder.CollectFrom(metrics.NotCounted, func(add metrics.Add) {
		accounts.Missed(func(reason accounting.MissReason, count uint64) { add(float64(count), string(reason)) })
	})
}

func addTraffic(add metrics.Add, traffic accounting.Traffic, labels ...string) {
	add(float64(traffic.Sent), append(slices.Clip(labels), metrics.DirectionSent)...)
	add(float64(traffic.Received), append(slices.Clip(labels), metrics.DirectionReceived)...)
}

func serviceLabels(row accounting.Row) []string {
	return []string{row.Service.Namespace, row.Service.Name, row.Proximity.String(), row.Tier}
}
