package audit

import (
	"context"
	"fmt"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/dns"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// Wanted is what a node should have.
type Wanted struct {
	Tables ruleset.Tables
	// Services are those in the tables, DNSServices those that DNS answers for.
	Services, DNSServices int
}

// Numbers are the numbers of session affinity that each family's table holds. A new proxy keeps them, so what the tables
// should hold depends on them.
type Numbers map[model.Family]ruleset.Objects

// Want returns what a node's tables should hold in a state of the cluster, which begins with change. It does what
// 'proxy run' does, but with tables in memory.
func Want(
	ctx context.Context, node string, config ruleset.Config, zone dns.Zone, change model.Change, numbers Numbers,
) (Wanted, error) {
	kernel := &memory{numbers: numbers}
	names := &dns.Table{Zone: zone}
	p := proxy.New(node, config, kernel, names)
	p.Apply(change)
	report, err := p.Sync(ctx)
	if err != nil {
		return Wanted{}, fmt.Errorf("find out what the tables of node %s should hold: %w", node, err)
	}
	return Wanted{kernel.tables, report.Total, names.Len()}, nil
}

// memory is a kernel in memory. Its tables begin empty, except for the numbers.
type memory struct {
	numbers Numbers
	tables  ruleset.Tables
}

// Commit does what the batch says.
func (m *memory) Commit(_ context.Context, batch ruleset.Batch) error { return m.tables.Apply(batch) }

// Objects returns the numbers and nothing else, so there is nothing to remove.
func (m *memory) Objects(_ context.Context, family model.Family) (ruleset.Objects, error) {
	return m.numbers[family], nil
}
