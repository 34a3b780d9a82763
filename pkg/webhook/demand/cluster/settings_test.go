package cluster

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

func TestSettingsPublishAndCompare(t *testing.T) {
	for _, c := range []struct {
		clients, source    string // empty: no annotation
		byWord, byDefault  bool
		isCompared, orElse bool // with the assumed demand: without the default, and with it
	}{
		{"", "", false, true, true, false},
		{"", "measured", true, true, false, false},
		{" ingress/nginx ", "measured", true, true, false, false},
		{"ingress/nginx", "", false, false, false, false},
		{"measured", "", false, true, false, false}, // it is ignored, and the default applies
		{"", "Measured", false, true, true, false},
	} {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
		metav1.SetMetaDataAnnotation(&s.ObjectMeta, policy.TopologyKeysAnnotation, string(policy.Zone)+", *")
		if c.clients != "" {
			metav1.SetMetaDataAnnotation(&s.ObjectMeta, policy.ClientsAnnotation, c.clients)
		}
		if c.source != "" {
			metav1.SetMetaDataAnnotation(&s.ObjectMeta, policy.DemandSourceAnnotation, c.source)
		}
		byAnnotation, byDefault := Settings{}, Settings{MeasuredByDefault: true}
		got := [4]bool{byAnnotation.PublishesDemand(s), byDefault.PublishesDemand(s), byAnnotation.IsComparable(s), byDefault.IsComparable(s)}
		if want := [4]bool{c.byWord, c.byDefault, c.isCompared, c.orElse}; got != want {
			t.Errorf("clients %q, source %q: published, published by default, comparable, comparable by default: %v, want %v",
				c.clients, c.source, got, want)
		}
	}
}
