package convert

import (
	"net/netip"
	"strings"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

var equateValues = cmp.Options{cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})}

func addrs(texts ...string) []netip.Addr {
	var list []netip.Addr
	for _, text := range texts {
		list = append(list, netip.MustParseAddr(text))
	}
	return list
}

func prefixes(texts ...string) []netip.Prefix {
	var list []netip.Prefix
	for _, text := range texts {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}

// webService is a plain Service that each case changes.
func webService() *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: corev1.ServiceSpec{
			ClusterIP:  "10.96.0.10",
			ClusterIPs: []string{"10.96.0.10"},
			Ports:      []corev1.ServicePort{{Name: "http", Port: 80}},
		},
	}
}

func webModel() *model.Service {
	return &model.Service{
		Name:       model.ObjectName{Namespace: "default", Name: "web"},
		ClusterIPs: addrs("10.96.0.10"),
		Ports:      []model.ServicePort{{Name: "http", Protocol: model.TCP, Port: 80}},
	}
}

func webSlice() *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "web-abc", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(8080))}},
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.244.0.5"}}},
	}
}

// webSliceModel is the converted form of webSlice.
func webSliceModel() *model.EndpointSlice {
	return &model.EndpointSlice{
		Name:      model.ObjectName{Namespace: "default", Name: "web-abc"},
		Service:   model.ObjectName{Namespace: "default", Name: "web"},
		Ports:     []model.SlicePort{{Name: "http", Protocol: model.TCP, Port: 8080}},
		Endpoints: []model.SliceEndpoint{{Addr: addrs("10.244.0.5")[0], Endpoint: model.Endpoint{Ready: true, Serving: true}}},
	}
}

func texts(errs field.ErrorList) []string {
	var list []string
	for _, err := range errs {
		list = append(list, err.Error())
	}
	return list
}

// skippedOf returns findings for skipped parts of a Service, each given as "FIELD: REASON".
func skippedOf(service model.ObjectName, sentences ...string) []model.Finding {
	var list []model.Finding
	for _, sentence := range sentences {
		field, reason, _ := strings.Cut(sentence, ": ")
		list = append(list, model.Finding{Kind: ServiceKind, Name: service, Code: model.PartiallyIgnored, Field: field, Reason: reason})
	}
	return list
}
