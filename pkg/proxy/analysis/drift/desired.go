package drift

import (
	"context"
	"fmt"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/serve/dns"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/syncer"
)

// DesiredState is the desired state of a node.
type DesiredState struct {
	Tables ruleset.Tables
	// Services is the number of Services in the tables, and DNSServices the number of those that DNS serves.
	Services, DNSServices int
}

// AffinityNumbers are the numbers of session affinity in each family's table. A new proxy keeps them, so the desired
// tables depend on them.
type AffinityNumbers map[model.Family]ruleset.Objects

// Desired returns the desired tables of a node for a state of the cluster, which change describes completely. It does
// the same as 'proxy run', but with tables in memory.
func Desired(
	ctx context.Context, node string, config ruleset.Config, zone dns.Zone, change model.Change, numbers AffinityNumbers,
) (DesiredState, error) {
	kernel := &fakeKernel{numbers: numbers}
	names := &dns.Table{Zone: zone}
	p := syncer.New(node, config, kernel, names)
	p.Apply(change)
	report, err := p.Sync(ctx)
	if err != nil {
		return DesiredState{}, fmt.Errorf("compute desired tables of node %s: %w", node, err)
	}
	return DesiredState{kernel.tables, report.Applied, names.Len()}, nil
}

// fakeKernel is a kernel in memory. Its tables are empty at first, except for the numbers.
type fakeKernel struct {
	numbers AffinityNumbers
	tables  ruleset.Tables
}

// Commit applies the batch.
func (k *fakeKernel) Commit(_ context.Context, batch ruleset.Batch) error {
	return k.tables.Apply(batch)
}

// Objects returns the numbers and nothing else, so there is nothing to delete.
func (k *fakeKernel) Objects(_ context.Context, family model.Family) (ruleset.Objects, error) {
	return k.numbers[family], nil
}
