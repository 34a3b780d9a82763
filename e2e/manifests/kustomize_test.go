package manifests_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
)

func TestPlainAndKustomizedAreTheSame(t *testing.T) {
	if diff := cmp.Diff(plain(t, folder), kustomized(t, folder)); diff != "" {
		t.Errorf("-f and -k (-plain +kustomized):\n%s", diff)
	}
}

// The overlay contains the differences that are necessary next to kube-proxy, and no others.
func TestBesideKubeProxyDiffersInAFewFields(t *testing.T) {
	full, overlaid := kustomized(t, folder), kustomized(t, besideKubeProxy)
	want := only(t, full.DaemonSets).DeepCopy()
	container := &want.Spec.Template.Spec.Containers[0]
	container.Args = append(container.Args, "--service-proxy-name=vicinity")
	container.ReadinessProbe.HTTPGet.Port.IntVal = 10456
	container.LivenessProbe.HTTPGet.Port.IntVal = 10456
	full.DaemonSets = map[string]*appsv1.DaemonSet{want.Name: want}
	full.ConfigMaps, overlaid.ConfigMaps = nil, nil // config_test.go compares them
	if diff := cmp.Diff(full, overlaid); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
}
