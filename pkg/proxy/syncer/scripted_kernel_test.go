package syncer_test

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// scriptedKernel is a kernel in memory with hooks for tests. A hook that is nil does nothing.
type scriptedKernel struct {
	memoryKernel
	// reject is called before each batch that is not empty; its error rejects the batch.
	reject func(ruleset.Batch) error
	// committed is called after each batch that was applied.
	committed func(ruleset.Batch)
	// readErr is the error of reading a table.
	readErr error
	// batchDuration is how long each batch takes.
	batchDuration time.Duration
}

func (k *scriptedKernel) Commit(ctx context.Context, batch ruleset.Batch) error {
	if len(batch.Ops) == 0 {
		return nil
	}
	time.Sleep(k.batchDuration)
	if k.reject != nil {
		if err := k.reject(batch); err != nil {
			return err
		}
	}
	if err := k.memoryKernel.Commit(ctx, batch); err != nil {
		return err
	}
	if k.committed != nil {
		k.committed(batch)
	}
	return nil
}

func (k *scriptedKernel) Objects(ctx context.Context, family model.Family) (ruleset.Objects, error) {
	if k.readErr != nil {
		return ruleset.Objects{}, k.readErr
	}
	return k.memoryKernel.Objects(ctx, family)
}

// rejectAll rejects every batch.
func rejectAll(ruleset.Batch) error { return errInjected }

// rejectCleanups rejects the batches that delete chains and sets, and nothing else.
func rejectCleanups(batch ruleset.Batch) error {
	for _, op := range batch.Ops {
		switch op.Object.(type) {
		case ruleset.ChainObject, ruleset.SetObject:
			if op.Verb == ruleset.Delete {
				return errInjected
			}
		}
	}
	return nil
}

// recreatesTable reports whether a batch deletes a table.
func recreatesTable(batch ruleset.Batch) bool {
	return slices.ContainsFunc(batch.Ops, func(op ruleset.Op) bool {
		_, isTable := op.Object.(ruleset.TableObject)
		return isTable && op.Verb == ruleset.Delete
	})
}

const affinityTimeout = time.Hour

// stickyService returns the change of a Service with session affinity and the given endpoints, 10.244.0.N.
func stickyService(endpoints ...int) model.Change {
	name := model.ObjectName{Namespace: "default", Name: "sticky"}
	slice := &model.EndpointSlice{Name: name, Service: name, Ports: []model.SlicePort{{Protocol: model.TCP, Port: 8080}}}
	for _, number := range endpoints {
		slice.Endpoints = append(slice.Endpoints, model.SliceEndpoint{
			Addr: podAddr(number), Endpoint: model.Endpoint{Node: "elsewhere", Ready: true, Serving: true},
		})
	}
	service := &model.Service{
		Name: name, ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.9.9")}, AffinityTimeout: affinityTimeout,
		Ports: []model.ServicePort{{Protocol: model.TCP, Port: 80}},
	}
	return model.Change{
		Services: map[model.ObjectName]*model.Service{name: service}, Slices: map[model.ObjectName]*model.EndpointSlice{name: slice},
	}
}

func podAddr(number int) netip.Addr { return netip.AddrFrom4([4]byte{10, 244, 0, byte(number)}) }
