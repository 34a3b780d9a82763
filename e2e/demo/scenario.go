package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"text/template"
	"time"
)

// The Service of the demo, as its owner wrote it.
const (
	serviceName  = "default/web"
	topologyKeys = "topology.kubernetes.io/zone, *"
	servicePort  = 80
	targetPort   = 8080
)

var frontends = []netip.AddrPort{
	netip.AddrPortFrom(netip.MustParseAddr("10.96.0.10"), servicePort),
	netip.AddrPortFrom(netip.MustParseAddr("fd00:96::a"), servicePort),
}

//go:embed manifests.yaml.tmpl
var manifestsText string

var manifests = template.Must(template.New("").Parse(manifestsText))

// manifestPlace is what the templates see of a place.
type manifestPlace struct {
	Node, Zone, Web string
	IPv4, IPv6      netip.Addr
}

// writeCluster writes the nodes and the Service, which stay as they are in all acts.
func (s *stage) writeCluster() error {
	values := map[string]any{
		"Places": s.manifestPlaces(""), "TopologyKeys": topologyKeys,
		"IPv4": frontends[0].Addr(), "IPv6": frontends[1].Addr(), "Port": servicePort, "TargetPort": targetPort,
	}
	for _, name := range []string{"nodes", "service"} {
		if err := s.write(name, values); err != nil {
			return err
		}
	}
	return nil
}

// writeEndpoints writes the Service's EndpointSlices without those of one zone, and returns when they took effect.
func (s *stage) writeEndpoints(emptied string) (time.Time, error) {
	err := s.write("endpoints", map[string]any{"Places": s.manifestPlaces(emptied), "TargetPort": targetPort})
	return time.Now(), err
}

// write replaces a file in one step, so that no proxy reads half of it.
func (s *stage) write(name string, values map[string]any) error {
	var text bytes.Buffer
	if err := manifests.ExecuteTemplate(&text, name, values); err != nil {
		return fmt.Errorf("writing the manifest of the %s: %w", name, err)
	}
	draft := filepath.Join(s.manifests, "."+name+".draft")
	if err := os.WriteFile(draft, text.Bytes(), 0o644); err != nil {
		return fmt.Errorf("writing the manifest of the %s: %w", name, err)
	}
	return os.Rename(draft, filepath.Join(s.manifests, name+".yaml"))
}

func (s *stage) manifestPlaces(emptied string) []manifestPlace {
	var list []manifestPlace
	for _, p := range s.places {
		if p.zone != emptied {
			list = append(list, manifestPlace{Node: p.node.Name, Zone: p.zone, Web: p.web.Name, IPv4: p.web.IPv4, IPv6: p.web.IPv6})
		}
	}
	return list
}

// wanted returns where the Service's owner wants connections from a zone to go: the zone's own pods, or all pods if it
// has none. It is worked out here, from the annotation's meaning, and not by the proxy's code.
func (s *stage) wanted(zone, emptied string) []place {
	var own, all []place
	for _, p := range s.places {
		if p.zone == emptied {
			continue
		}
		all = append(all, p)
		if p.zone == zone {
			own = append(own, p)
		}
	}
	if len(own) > 0 {
		return own
	}
	return all
}
