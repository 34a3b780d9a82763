package convert

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/vicinity-proxy/vicinity/pkg/sanitize"
)

// Type is the type that an object states.
type Type struct{ APIVersion, Kind string }

// The previous types of EndpointSlices. Dumps of old clusters, or by old commands, contain them.
var (
	endpoints = Type{"v1", "Endpoints"}
	oldSlices = []Type{{"discovery.k8s.io/v1beta1", EndpointSliceKind}, {"discovery.k8s.io/v1alpha1", EndpointSliceKind}}
)

// Inventory counts the objects of each type in a file or a cluster, including those that are invalid or not read.
type Inventory map[Type]int

// Count returns the number of objects of a kind, in the version that is read.
func (i Inventory) Count(kind *Kind) int { return i[Type{kind.Group.String(), kind.Name}] }

// maxTypes bounds the number of types that a sentence names.
const maxTypes = 6

// String lists the types with their counts, those that are read first, as in "Service (3), ConfigMap (1)".
func (i Inventory) String() string {
	if len(i) == 0 {
		return "no objects"
	}
	isOld := func(typ Type) bool { return typ == endpoints || slices.Contains(oldSlices, typ) }
	isRead := func(typ Type) bool {
		return slices.ContainsFunc(Kinds, func(kind *Kind) bool { return typ == Type{kind.Group.String(), kind.Name} })
	}
	rank := func(typ Type) int {
		switch {
		case isRead(typ):
			return 0
		case isOld(typ):
			return 1
		}
		return 2
	}
	types := slices.SortedFunc(maps.Keys(i), func(a, b Type) int {
		return cmp.Or(
			cmp.Compare(rank(a), rank(b)), cmp.Compare(i[b], i[a]), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.APIVersion, b.APIVersion),
		)
	})
	var parts []string
	others := 0
	for position, typ := range types {
		switch {
		case position >= maxTypes:
			others += i[typ]
		case isOld(typ):
			parts = append(parts, fmt.Sprintf("%s %s (%d, an old kind that is not read)", typ.APIVersion, typ.Kind, i[typ]))
		default:
			parts = append(parts, fmt.Sprintf("%s (%d)", sanitize.Truncate(typ.Kind), i[typ]))
		}
	}
	if others > 0 {
		parts = append(parts, fmt.Sprintf("other kinds (%d)", others))
	}
	return strings.Join(parts, ", ")
}

// MissingKinds returns a sentence about the kinds without an object: what follows from that, the command that prints
// the missing objects, and the existing ones. It is empty if there is an object of each kind.
func (i Inventory) MissingKinds(place, consequence string, kinds ...*Kind) string {
	var names, resources []string
	option := ""
	for _, kind := range kinds {
		if i.Count(kind) > 0 {
			continue
		}
		names, resources = append(names, kind.Name), append(resources, kind.Resource)
		if !kind.IsClusterScoped {
			option = " -A"
		}
	}
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("there is no %s in %s, so %s; 'kubectl get %s%s -o yaml' prints %ss; found: %s",
		strings.Join(names, " and no "), place, consequence, strings.Join(resources, ","), option, strings.Join(names, "s and "), i)
}

// MissingSlices returns a sentence if there are no EndpointSlices for the Services, or some of an old version.
// hasUnread reports whether objects that describe endpoints exist but are not read.
func (i Inventory) MissingSlices(place string) (sentence string, hasUnread bool) {
	old := 0
	for _, typ := range oldSlices {
		old += i[typ]
	}
	switch {
	case i.Count(Services) == 0:
		return "", false
	case i.Count(EndpointSlices) == 0:
		return i.MissingKinds(place, "no Service has an endpoint", EndpointSlices), old+i[endpoints] > 0
	case old > 0:
		return fmt.Sprintf("some EndpointSlices in %s are not of %s, so their endpoints are missing; "+
			"'kubectl get endpointslices -A -o yaml' prints EndpointSlices; found: %s", place, discoveryv1.SchemeGroupVersion, i), true
	}
	return "", false
}
