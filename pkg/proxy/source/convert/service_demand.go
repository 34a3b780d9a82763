package convert

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/servicedemand"
)

// ServiceDemands hold measured demand. They are listed and watched only while a Service is planned with it, and a
// cluster where nobody measures has none.
var ServiceDemands = describe(
	Kind{
		Name: servicedemand.Kind, Group: servicedemand.Group, Resource: servicedemand.Resource, AddToScheme: servicedemand.AddToScheme,
		IsOnDemand: true,
		Optional: &Optional{
			Missing: "this cluster has no ServiceDemands, so the demand of Services that are to be planned as measured is assumed; " +
				"the component demand of the webhook's manifests brings them",
			Forbidden: "ServiceDemands may not be listed, so the demand of Services that are to be planned as measured is assumed; " +
				"the component demand of the webhook's manifests has the role that allows it",
		},
	},
	func(object *servicedemand.ServiceDemand, _ View) (*model.Demand, field.ErrorList) {
		return ServiceDemand(object)
	},
	func(change *model.Change) *map[model.ObjectName]*model.Demand { return &change.Demands }, fullName,
)

// ServiceDemand turns a ServiceDemand into a value of the model. One impossible entry refuses the whole object: with
// only a part of it the rest of the cluster would seem to ask nothing.
func ServiceDemand(object *servicedemand.ServiceDemand) (*model.Demand, field.ErrorList) {
	metadata, zones, nodes := field.NewPath("metadata"), field.NewPath("zones"), field.NewPath("nodes")
	errs := checkNamespace(metadata.Child("namespace"), object.Namespace)
	errs = append(errs, checkName(metadata.Child("name"), object.Name, validation.IsDNS1123Label)...)
	errs = append(errs, checkLength(zones, len(object.Zones), servicedemand.MaxZones)...)
	errs = append(errs, checkLength(nodes, len(object.Nodes), servicedemand.MaxNodes)...)
	errs = append(errs, checkCounts(object)...)
	if len(errs) > 0 {
		return nil, errs
	}
	ofZones, ofNodes := asks{path: zones, child: "zone", check: validation.IsValidLabelValue},
		asks{path: nodes, child: "node", check: validation.IsDNS1123Subdomain}
	for _, zone := range object.Zones {
		ofZones.add(zone.Zone, zone.Asks)
	}
	for _, node := range object.Nodes {
		ofNodes.add(node.Node, node.Asks)
	}
	ofZones.limit(servicedemand.Million, "what all zones ask")
	// Both are rounded, and rounding may add to each node.
	ofNodes.limit(ofZones.sum+uint64(len(object.Nodes)), "what their zones ask")
	if errs := append(ofZones.errs, ofNodes.errs...); len(errs) > 0 {
		return nil, errs
	}
	return &model.Demand{
		Zones: ofZones.byName, Nodes: ofNodes.byName, Since: object.Since.UTC(),
		NodesHeard: int(object.NodesHeard), NodesAll: int(object.NodesAll), ConnectionsPerMinute: uint64(object.ConnectionsPerMinute),
	}, nil
}

// checkCounts refuses numbers of things that are negative, and numbers of no time.
func checkCounts(object *servicedemand.ServiceDemand) field.ErrorList {
	errs := checkCount("nodesHeard", int64(object.NodesHeard))
	errs = append(errs, checkCount("nodesAll", int64(object.NodesAll))...)
	errs = append(errs, checkCount("connectionsPerMinute", object.ConnectionsPerMinute)...)
	if object.Since.IsZero() {
		errs = append(errs, field.Required(field.NewPath("since"), ""))
	}
	return errs
}

func checkCount(name string, count int64) field.ErrorList {
	if count >= 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath(name), count, "must not be negative")}
}

// asks collects the demand of the zones or nodes that a list names.
type asks struct {
	path  *field.Path
	child string // the field with the name
	check func(name string) []string

	entries int
	byName  map[string]uint32
	sum     uint64
	errs    field.ErrorList
}

func (a *asks) add(name string, asks uint32) {
	path := a.path.Index(a.entries).Child(a.child)
	a.entries++
	a.sum += uint64(asks)
	if _, isAgain := a.byName[name]; isAgain {
		a.errs = append(a.errs, field.Duplicate(path, name))
		return
	}
	a.errs = append(a.errs, invalid(path, name, a.check(name))...)
	if a.byName == nil {
		a.byName = map[string]uint32{}
	}
	a.byName[name] = asks
}

// limit refuses the list if those in it ask more together.
func (a *asks) limit(most uint64, what string) {
	if a.sum > most {
		a.errs = append(a.errs, field.Invalid(a.path, a.sum, fmt.Sprintf("the sum must not be greater than %d, %s", most, what)))
	}
}
