package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
)

// location is a node with its zone and the two pods on it. The fourth act has locations without a client.
type location struct {
	node   *fabric.Node
	zone   string
	client *fabric.Pod
	web    *fabric.Pod
}

// setup has all nodes, pods, manifests and proxies.
type setup struct {
	fabric    *fabric.Fabric
	locations []location
	manifests string
	program   string // the proxy's
	logs      string
	proxies   []*proxy
}

var zoneLetters = []string{"a", "b", "c"}

const nodesPerZone = 2

// newSetup creates the nodes and pods. startProxies starts the proxies.
func newSetup(program, folder string) (*setup, error) {
	s := &setup{program: program, manifests: filepath.Join(folder, "manifests"), logs: filepath.Join(folder, "logs")}
	for _, dir := range []string{s.manifests, s.logs} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return nil, fmt.Errorf("create folder: %w", err)
		}
	}
	network, err := fabric.New()
	if err != nil {
		return nil, err
	}
	s.fabric = network
	for _, letter := range zoneLetters {
		for i := range nodesPerZone {
			if err := s.addLocation("zone-"+letter, fmt.Sprintf("%s%d", letter, i+1)); err != nil {
				return nil, errors.Join(err, network.Close())
			}
		}
	}
	return s, nil
}

func (s *setup) addLocation(zone, suffix string) error {
	node, err := s.fabric.AddNode("node-" + suffix)
	if err != nil {
		return err
	}
	client, err := node.AddPod("client-" + suffix)
	if err != nil {
		return err
	}
	web, err := addWeb(node, suffix)
	if err != nil {
		return err
	}
	s.locations = append(s.locations, location{node: node, zone: zone, client: client, web: web})
	return nil
}

// addWeb adds a web pod to a node. writeEndpoints makes it an endpoint of the Service.
func addWeb(node *fabric.Node, suffix string) (*fabric.Pod, error) {
	web, err := node.AddPod("web-" + suffix)
	if err != nil {
		return nil, err
	}
	_, err = web.Serve(targetPort)
	return web, err
}

// startProxies starts a proxy on each node and waits until each has its rules in the kernel.
func (s *setup) startProxies(ctx context.Context) error {
	for _, location := range s.locations {
		proxy, err := startProxy(s.program, s.manifests, s.logs, location.node)
		if err != nil {
			return err
		}
		s.proxies = append(s.proxies, proxy)
	}
	var waiting sync.WaitGroup
	errs := make([]error, len(s.proxies))
	for i, proxy := range s.proxies {
		waiting.Go(func() { errs[i] = proxy.waitReady(ctx) })
	}
	waiting.Wait()
	return errors.Join(errs...)
}

// close stops the proxies gracefully, and then removes everything else.
func (s *setup) close() error {
	var ending sync.WaitGroup
	for _, proxy := range s.proxies {
		ending.Go(proxy.stop)
	}
	ending.Wait()
	return s.fabric.Close()
}
