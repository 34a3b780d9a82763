//go:build linux

package owners

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// elements reads what a set holds.
type elements = func(context.Context, model.Family, ruleset.Set) ([]ruleset.Element, error)

// Recall notes, before the first sync, the UDP frontends that an earlier proxy left in the kernel, and who answered its
// node ports: their Services may have been deleted meanwhile. Found are the tables that exist. A sync does not depend
// on it.
func (r *Reader) Recall(ctx context.Context, found map[model.Family]ruleset.Objects, read elements) {
	var failures []error
	for _, family := range model.Families {
		failures = append(failures, r.recallFamily(ctx, family, found[family], read))
	}
	r.unrecalled = errors.Join(failures...)
}

func (r *Reader) recallFamily(ctx context.Context, family model.Family, found ruleset.Objects, read elements) error {
	if _, err := r.recallFrontends(ctx, family, found, ruleset.Services, read); err != nil {
		return err
	}
	nodePorts, err := r.recallFrontends(ctx, family, found, ruleset.NodePorts, read)
	if err != nil {
		return err
	}
	if err := r.recallEndpoints(ctx, family, nodePorts, read); err != nil {
		return fmt.Errorf("read who answered %s node ports before: %w", family, err)
	}
	return nil
}

// recallFrontends returns the elements of a set whose keys are frontends, and notes those of UDP.
func (r *Reader) recallFrontends(
	ctx context.Context, family model.Family, found ruleset.Objects, set ruleset.Set, read elements,
) ([]ruleset.Element, error) {
	if !slices.Contains(found.Sets, set.Name) {
		return nil, nil
	}
	elements, err := read(ctx, family, set)
	if err != nil {
		return nil, fmt.Errorf("read the frontends that were served before: %w", err)
	}
	for _, element := range elements {
		if frontend := ruleset.FrontendOf(family, element); frontend.Protocol == model.UDP {
			r.recalled(frontend, nil)
		}
	}
	return elements, nil
}

// recallAtMost bounds how many slots of node ports are read back. The kernel's time for that grows with the square of
// the number, and the first sync waits for it: some 30 ms for so many.
const recallAtMost = 20_000

var errManySlots = fmt.Errorf("they have more than %d slots", recallAtMost)

// recallEndpoints notes who answered those node ports that are of UDP. It reads the map that most node ports are in: not
// the maps of wide ones, nor those of session affinity.
func (r *Reader) recallEndpoints(ctx context.Context, family model.Family, nodePorts []ruleset.Element, read elements) error {
	slots, isConcerned := 0, false
	for _, element := range nodePorts {
		slots += ruleset.SlotsOf(element)
		isConcerned = isConcerned || element.Key.Proto == model.UDP && ruleset.SlotsOf(element) > 0
	}
	switch {
	case !isConcerned:
		return nil
	case slots > recallAtMost:
		return errManySlots
	}
	elements, err := read(ctx, family, ruleset.NodePortEndpoints)
	if err != nil {
		return err
	}
	answered := map[model.Frontend][]netip.AddrPort{}
	for _, element := range elements {
		if frontend := ruleset.FrontendOf(family, element); frontend.Protocol == model.UDP {
			answered[frontend] = append(answered[frontend], netip.AddrPortFrom(element.Value.Addr, element.Value.Port))
		}
	}
	for frontend, endpoints := range answered {
		slices.SortFunc(endpoints, netip.AddrPort.Compare)
		r.recalled(frontend, slices.Compact(endpoints)) // an endpoint may have several slots
	}
	return nil
}

// recalled notes a frontend of an earlier proxy as one that is gone. Whose it was is unknown.
func (r *Reader) recalled(frontend model.Frontend, endpoints []netip.AddrPort) {
	port := &Port{Protocol: frontend.Protocol, origins: &origins{}}
	for _, endpoint := range endpoints {
		port.origins.endpoints = append(port.origins.endpoints, located{addr: endpoint})
	}
	r.changes = append(r.changes, change{&Frontend{Port: port, Frontend: frontend}, true})
}
