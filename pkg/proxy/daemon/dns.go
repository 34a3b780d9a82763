package daemon

import (
	"context"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/report/metrics"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/serve/dns"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/serve/status"
)

// newDNS returns the component that serves DNS for headless Services; it is empty if no address is set.
func newDNS(c *common) component {
	if !c.options.DNSAddress.IsValid() {
		return component{}
	}
	table := &dns.Table{Zone: c.options.DNSZone}
	c.recorder.CollectFrom(metrics.DNSServices, func(add metrics.Add) { add(float64(table.Len())) })
	server := dns.Server{Table: table, Log: c.log, OnResponse: func(result dns.Result) {
		c.recorder.Add(metrics.DNSRequests, 1, result.Type, string(result.Outcome))
	}}
	return component{
		handler: table,
		run:     func(ctx context.Context) error { return server.Run(ctx, c.options.DNSAddress) },
		summary: func(s *status.Summary) { s.DNSServices = table.Len() },
	}
}
