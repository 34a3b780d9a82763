package drift

import (
	"context"
	"fmt"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/serve/dns"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/syncer"
)

// DesiredState is what a node should have.
type DesiredState struct {
	Tables ruleset.Tables
	// Services are those in the tables, DNSServices those that DNS answers for.
	Services, DNSServices int
}

// Numbers are the numbers of session affinity that each family's table holds. A new proxy keeps them, so what the tables
// should hold depends on them.
type Numbers map[model.Family]ruleset.Objects

// Desired returns what a node's tables should hold in a state of the cluster, which begins with change. It does what
// 'proxy run' does, but with tables in memory.
func Desired(
	ctx context.Context, node string, config ruleset.Config, zone dns.Zone, change model.Change, numbers Numbers,
) (DesiredState, error) {
	kernel := &fakeKernel{numbers: numbers}
	names := &dns.Table{Zone: zone}
	p := syncer.New(node, config, kernel, names)
	p.Apply(change)
	report, err := p.Sync(ctx)
	if err != nil {
		return DesiredState{}, fmt.Errorf("find out what the tables of node %s should hold: %w", node, err)
	}
	return DesiredState{kernel.tables, report.Total, names.Len()}, nil
}

// fakeKernel is a kernel in memory. Its tables begin empty, except for the numbers.
type fakeKernel struct {
	numbers Numbers
	tables  ruleset.Tables
}

// Commit does what the batch says.
func (m *fakeKernel) Commit(_ context.Context, batch ruleset.Batch) error {
	return m.tables.Apply(batch)
}

// Objects returns the numbers and nothing else, so there is nothing to remove.
func (m *fakeKernel) Objects(_ context.Context, family model.Family) (ruleset.Objects, error) {
	return m.numbers[family], nil
}
