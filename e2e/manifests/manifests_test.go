// Package manifests_test checks that the manifests and the Dockerfiles do what they document: what kubectl builds from
// them, what they allow, and that all of them are consistent with the program.
package manifests_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/vicinity-proxy/vicinity/e2e/lab/binaries"
)

// The folders, relative to this package.
const (
	root            = "../.."
	folder          = root + "/manifests"
	besideKubeProxy = folder + "/beside-kube-proxy"
	cleanup         = folder + "/cleanup"
	inCluster       = "/var/run/secrets/kubernetes.io/serviceaccount"
	configFile      = "config.conf"
)

// documents are the objects in some manifests, by kind and name.
type documents struct {
	ServiceAccounts     map[string]*corev1.ServiceAccount
	ClusterRoles        map[string]*rbacv1.ClusterRole
	ClusterRoleBindings map[string]*rbacv1.ClusterRoleBinding
	ConfigMaps          map[string]*corev1.ConfigMap
	DaemonSets          map[string]*appsv1.DaemonSet
	Jobs                map[string]*batchv1.Job
	Services            map[string]*corev1.Service
}

// parse parses each document strictly into its type: an unknown field fails the test.
func parse(t *testing.T, text []byte) documents {
	t.Helper()
	all := documents{
		map[string]*corev1.ServiceAccount{}, map[string]*rbacv1.ClusterRole{}, map[string]*rbacv1.ClusterRoleBinding{},
		map[string]*corev1.ConfigMap{}, map[string]*appsv1.DaemonSet{}, map[string]*batchv1.Job{},
		map[string]*corev1.Service{},
	}
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		var header metav1.TypeMeta
		if err := yaml.Unmarshal(document, &header); err != nil {
			t.Fatalf("%v in:\n%s", err, document)
		}
		switch header.APIVersion + " " + header.Kind {
		case "v1 ServiceAccount":
			put(t, all.ServiceAccounts, document)
		case "rbac.authorization.k8s.io/v1 ClusterRole":
			put(t, all.ClusterRoles, document)
		case "rbac.authorization.k8s.io/v1 ClusterRoleBinding":
			put(t, all.ClusterRoleBindings, document)
		case "v1 ConfigMap":
			put(t, all.ConfigMaps, document)
		case "apps/v1 DaemonSet":
			put(t, all.DaemonSets, document)
		case "v1 Service":
			put(t, all.Services, document)
		case "batch/v1 Job":
			put(t, all.Jobs, document)
		default:
			t.Errorf("no test checks a %s %s", header.APIVersion, header.Kind)
		}
	}
}

func put[T any, P interface {
	*T
	metav1.Object
}](t *testing.T, into map[string]P, document []byte) {
	t.Helper()
	object := P(new(T))
	if err := yaml.UnmarshalStrict(document, object); err != nil {
		t.Fatalf("%v in:\n%s", err, document)
	}
	name := object.GetName()
	if name == "" {
		name = object.GetGenerateName()
	}
	into[name] = object
}

// only returns the only value of a map.
func only[T any](t *testing.T, m map[string]T) T {
	t.Helper()
	if len(m) != 1 {
		t.Fatalf("there are %d, want one: %v", len(m), m)
	}
	for _, value := range m {
		return value
	}
	panic("unreachable")
}

// plain returns what `kubectl apply -f` reads from a folder: its .yaml files, without subfolders.
func plain(t *testing.T, folder string) documents {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var texts [][]byte
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, text)
	}
	return parse(t, bytes.Join(texts, []byte("---\n")))
}

// kustomized returns what `kubectl apply -k` builds from a folder.
func kustomized(t *testing.T, folder string) documents {
	t.Helper()
	return parse(t, []byte(kubectl(t, "kustomize", folder)))
}

// programs returns the programs of a control plane, including kubectl.
func programs(t *testing.T) binaries.Programs {
	t.Helper()
	programs, err := binaries.Build(t.Context(), os.Stderr, binaries.Etcd, binaries.Kubernetes)
	if err != nil {
		t.Fatal(err)
	}
	return programs
}

// kubectl returns kubectl's standard output.
func kubectl(t *testing.T, arguments ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), programs(t).Path(binaries.Kubernetes, "kubectl"), arguments...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	output, err := cmd.Output()
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(arguments, " "), err, stderr.String())
	}
	return string(output)
}
