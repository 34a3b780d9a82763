package daemon

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/competing"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/report/events"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/report/metrics"
)

// otherProxiesInterval is the time between two checks for other service proxies. A check costs the kernel some ten
// short responses, 0.1 ms. Notifications would cost more: while any process listens to nf_tables, the kernel creates
// one for every element that we write.
const otherProxiesInterval = time.Minute

// otherProxies reports other service proxies on this node, once when one appears and once when it disappears. The last
// result remains while the kernel cannot be read.
type otherProxies struct {
	*common
	checkOnce func(context.Context) ([]competing.Conflict, error)
	reporter  eventReporter

	reported []competing.Conflict
	failed   bool // the last check
}

// newOtherProxies returns the component that checks for other service proxies, unless two proxies are intended: with
// --service-proxy-name each has its own Services.
func newOtherProxies(c *common, reporter eventReporter) component {
	if c.options.View.ServiceProxyName != "" {
		return component{}
	}
	others := &otherProxies{common: c, checkOnce: c.conn.OtherProxies, reporter: reporter}
	return component{run: unfailing(others.run)}
}

func (o *otherProxies) run(ctx context.Context) {
	for {
		found, err := o.checkOnce(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			o.report(found)
		case !o.failed:
			o.log.Warn("failed to check for other service proxies; retrying", "error", err)
		}
		o.failed = err != nil
		select {
		case <-ctx.Done():
			return
		case <-time.After(otherProxiesInterval):
		}
	}
}

// report reports changes. A proxy whose chains now come first counts as a new one.
func (o *otherProxies) report(found []competing.Conflict) {
	sentences := make([]string, 0, len(found))
	for _, conflict := range found {
		sentences = append(sentences, conflict.Message)
		before := conflictOf(o.reported, conflict.Proxy)
		if before == nil || conflict.Precedes && !before.Precedes {
			o.log.Warn("another service proxy is on this node",
				"proxy", conflict.Proxy, "tables", strings.Join(conflict.Tables, ", "), "first", conflict.Precedes,
				"meaning", conflict.Message, "fix", conflict.Remedy)
			o.reporter.report(events.OtherProxy(o.options.Node, conflict.Message, conflict.Remedy))
		}
	}
	for _, before := range o.reported {
		if conflictOf(found, before.Proxy) == nil {
			o.log.Info("another service proxy was removed from this node", "proxy", before.Proxy)
		}
	}
	o.reported = found
	o.status.SetOtherProxies(sentences)
	for _, program := range competing.Programs {
		o.recorder.SetBool(metrics.OtherProxies, conflictOf(found, program.ID) != nil, program.ID)
	}
}

// conflictOf returns the conflict with a program; nil means that there is none.
func conflictOf(conflicts []competing.Conflict, proxy string) *competing.Conflict {
	i := slices.IndexFunc(conflicts, func(f competing.Conflict) bool { return f.Proxy == proxy })
	if i < 0 {
		return nil
	}
	return &conflicts[i]
}
