package apiserver

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// AddressesResource is the name, in messages and interruptions, of the watch for the addresses of other proxies.
const AddressesResource = "endpointslices/addresses"

// minAddressesInterval is the minimum interval between two calls of OnProxyAddresses: a rollout replaces the proxies
// one after the other.
const minAddressesInterval = time.Second

// watchAddresses watches the addresses of the proxies on all nodes, in the EndpointSlices over their pods, until the
// context ends. Nothing waits for these addresses, and no decision about a Service depends on them.
func (w *Watcher) watchAddresses(ctx context.Context) {
	w.newStream(w.newRequest(convert.ProxyAddresses, AddressesResource)).start(ctx)
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.addressesChanged:
			w.options.OnProxyAddresses(w.proxyAddresses())
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(minAddressesInterval):
		}
	}
}

// proxyAddresses returns the nodes in all slices, each with one address of each family in which a slice lists it.
func (w *Watcher) proxyAddresses() map[string]*model.Node {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := map[string]*model.Node{}
	for _, slice := range w.state.objects[convert.ProxyAddresses] {
		for _, node := range slice.value.([]*model.Node) {
			if before := all[node.Name]; before != nil {
				node = &model.Node{Name: node.Name, Labels: node.Labels, Addresses: append(slices.Clone(before.Addresses), node.Addresses...)}
				slices.SortFunc(node.Addresses, netip.Addr.Compare)
			}
			all[node.Name] = node
		}
	}
	return all
}
