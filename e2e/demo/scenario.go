package main

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"text/template"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/apis/vicinity/v1alpha1"
)

// These are the Service of the demo and its settings.
const (
	serviceName  = "default/web"
	zoneKey      = "topology.kubernetes.io/zone"
	topologyKeys = zoneKey + ", *"
	servicePort  = 80
	targetPort   = 8080
)

var frontends = []netip.AddrPort{
	netip.AddrPortFrom(netip.MustParseAddr("10.96.0.10"), servicePort),
	netip.AddrPortFrom(netip.MustParseAddr("fd00:96::a"), servicePort),
}

//go:embed manifests.yaml.tmpl
var manifestsText string

var manifestTemplate = template.Must(template.New("").Parse(manifestsText))

// manifestLocation is a location as the templates get it.
type manifestLocation struct {
	Node, Zone, Web    string
	IPv4, IPv6         netip.Addr // of the web pod
	NodeIPv4, NodeIPv6 netip.Addr
	Evacuated          bool
}

// writeNodes writes the nodes, with those of one zone being evacuated, and returns the time of the write.
func (s *setup) writeNodes(evacuated string) (time.Time, error) {
	locations := manifestLocations(s.locations)
	for i := range locations {
		locations[i].Evacuated = locations[i].Zone == evacuated
	}
	err := s.write("nodes", map[string]any{"Locations": locations})
	return time.Now(), err
}

// writeService writes the Service with the owner's setting for its load.
func (s *setup) writeService(loadSetting setting) error {
	return s.writeServiceWith(topologyKeys, loadSetting)
}

func (s *setup) writeServiceWith(keys string, loadSetting setting) error {
	return s.write("service", map[string]any{
		"TopologyKeys": keys, "MaxLoad": loadSetting.annotation, "DemandSource": loadSetting.demand,
		"IPv4": frontends[0].Addr(), "IPv6": frontends[1].Addr(), "Port": servicePort, "TargetPort": targetPort,
	})
}

// writeEndpoints writes the Service's EndpointSlices, a file for each zone, and returns the time of the write. It
// deletes the file of a zone without web pods. Proxies apply a deletion at once, but keep an endpoint that is missing
// from a file for two seconds, because the file may be incompletely written.
func (s *setup) writeEndpoints(webs []location) (time.Time, error) {
	for _, letter := range zoneLetters {
		zone := "zone-" + letter
		if inThisZone := inZone(zone, webs); len(inThisZone) > 0 {
			values := map[string]any{"Name": "web-" + zone, "Locations": manifestLocations(inThisZone), "TargetPort": targetPort}
			if err := s.writeFile("endpoints-"+zone, "endpoints", values); err != nil {
				return time.Time{}, err
			}
		} else if err := os.Remove(s.manifest("endpoints-" + zone)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return time.Time{}, fmt.Errorf("delete the manifest of the endpoints in %s: %w", zone, err)
		}
	}
	return time.Now(), nil
}

// writeDemand writes the measured demand of the Service: the share of each zone's clients in all connections.
func (s *setup) writeDemand(topology loadTopology) error {
	var zones []v1alpha1.ZoneDemand
	for _, letter := range zoneLetters {
		name := "zone-" + letter
		zones = append(zones, v1alpha1.ZoneDemand{Zone: name,
			DemandPPM: uint32(topology.demandIn(name) * v1alpha1.PPM / float64(topology.total()))})
	}
	return s.write("demand", map[string]any{
		"Zones": zones, "Nodes": len(topology.clients), "PerMinute": topology.total(), "Since": time.Now().UTC().Format(time.RFC3339),
	})
}

// write writes the manifest that has its template's name.
func (s *setup) write(name string, values map[string]any) error {
	return s.writeFile(name, name, values)
}

// manifest returns the path of a manifest.
func (s *setup) manifest(name string) string { return filepath.Join(s.manifests, name+".yaml") }

// writeFile replaces a file in one step, so that no proxy reads an incomplete file.
func (s *setup) writeFile(name, template string, values map[string]any) error {
	var text bytes.Buffer
	if err := manifestTemplate.ExecuteTemplate(&text, template, values); err != nil {
		return fmt.Errorf("write the manifest of the %s: %w", name, err)
	}
	draft := filepath.Join(s.manifests, "."+name+".draft")
	if err := os.WriteFile(draft, text.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write the manifest of the %s: %w", name, err)
	}
	return os.Rename(draft, s.manifest(name))
}

func manifestLocations(locations []location) []manifestLocation {
	list := make([]manifestLocation, 0, len(locations))
	for _, loc := range locations {
		list = append(list, manifestLocation{
			Node: loc.node.Name, Zone: loc.zone, Web: loc.web.Name, IPv4: loc.web.IPv4, IPv6: loc.web.IPv6,
			NodeIPv4: loc.node.IPv4, NodeIPv6: loc.node.IPv6,
		})
	}
	return list
}

// without returns the locations outside a zone.
func (s *setup) without(zone string) []location {
	return slices.DeleteFunc(slices.Clone(s.locations), func(loc location) bool { return loc.zone == zone })
}

// expected returns the locations to which connections from a zone should go: the zone's own pods, or all pods if it has
// none. A zone that is being evacuated counts as empty. It is computed here from the meaning of the annotation, not by
// the proxy's code.
func (s *setup) expected(zone, emptied string) []location {
	all := s.without(emptied)
	if inOwnZone := inZone(zone, all); len(inOwnZone) > 0 {
		return inOwnZone
	}
	return all
}

func inZone(zone string, locations []location) []location {
	return slices.DeleteFunc(slices.Clone(locations), func(loc location) bool { return loc.zone != zone })
}
