// Package nodecondition_test runs the proxy with the component manifests/node-condition against a real API server. It
// tests the limits of the component's right, and when the Node's condition reports that Services work.
package nodecondition_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/vicinity-proxy/vicinity/e2e/site"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/report/condition"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
)

// The proxy's ServiceAccount in the manifests.
const namespace, account = "kube-system", "vicinity-proxy"

// apply applies the manifests with the component.
func apply(t *testing.T, api *site.Site) {
	t.Helper()
	dir := t.TempDir()
	absolute, err := filepath.Abs(filepath.Join("..", "..", "manifests"))
	must.Succeed(t, err)
	manifests, err := filepath.Rel(dir, absolute)
	must.Succeed(t, err)
	text := fmt.Sprintf("apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [%s]\n"+
		"components: [%s/node-condition]\n", manifests, manifests)
	must.Succeed(t, os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600))
	api.Kubectl(t, "apply", "-k", dir)
}

// configOnNode returns the configuration of a client with the token of a proxy's pod on a node.
func configOnNode(t *testing.T, api *site.Site, node string) *rest.Config {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "proxy-on-" + node},
		Spec: corev1.PodSpec{
			NodeName: node, ServiceAccountName: account, Containers: []corev1.Container{{Name: "proxy", Image: "vicinity-proxy"}},
		},
	}
	api.Create(t, pod)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID},
	}}
	response, err := api.Admin.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), account, request, metav1.CreateOptions{})
	must.Succeed(t, err)
	config := api.Account(t, namespace, account)
	config.BearerToken = response.Status.Token
	return config
}

// conditionStatus returns the status of a Node's condition for Services; empty if it has none.
func conditionStatus(node *corev1.Node) corev1.ConditionStatus {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == condition.Type {
			return node.Status.Conditions[i].Status
		}
	}
	return ""
}
