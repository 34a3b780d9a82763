package forecast

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/yaml"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/analysis/explain"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// isAbout reports whether two numbers of a report are the same: numbers have nine decimal places, and sums have a
// larger error.
func isAbout(a, b float64) bool { return math.Abs(a-b) < 1e-7 }

// TestAllSharesMakeOne covers the shares of a Service, of all Services together, and in a matrix.
func TestAllSharesMakeOne(t *testing.T) {
	unknown, refused, keys := 0, 0, 0
	for seed := range uint64(600) {
		report, _ := Compute(NewCluster(newGenerator(seed).hintedCluster(), convert.View{}), Options{Now: time.Now(), Bounds: []uint64{120, 150}})
		check := func(what string, s *Shares) {
			if sum := s.Zone + s.OtherZones + s.UnknownZones + s.Refused; !isAbout(sum, 1) {
				t.Errorf("seed %d: %s: the sum of the shares is %v, want 1: %+v", seed, what, sum, *s)
			}
			if s.Node > s.Zone+1e-7 || s.Zone > s.Region+1e-7 || s.Region > 1-s.Refused+1e-7 {
				t.Errorf("seed %d: %s: a smaller area has a larger share: %+v", seed, what, *s)
			}
			for _, part := range s.pointers() {
				if math.Signbit(*part) {
					t.Errorf("seed %d: %s: a share is negative: %+v", seed, what, *s)
				}
			}
			if s.UnknownZones > 0 {
				unknown++
			}
			if s.Refused > 0 {
				refused++
			}
		}
		for i := range report.Services {
			for j := range report.Services[i].Projections {
				projection := &report.Services[i].Projections[j]
				check(report.Services[i].Service+" "+projection.Setting, &projection.Shares)
				sum := projection.Refused
				for _, key := range projection.Keys {
					sum += key.Share
				}
				if len(projection.Keys) > 0 && projection.Note == "" {
					keys++
					if !isAbout(sum, 1) {
						t.Errorf("seed %d: %s: the shares of the keys do not sum up: %+v", seed, report.Services[i].Service, projection)
					}
				}
			}
		}
		for _, total := range report.Settings {
			if len(report.Services) == 0 {
				continue
			}
			check("all "+total.Setting, &total.Shares)
			sum := total.Refused
			for _, row := range total.Matrix {
				for _, part := range row {
					sum += part
				}
			}
			if !isAbout(sum, 1) {
				t.Errorf("seed %d: the sum of the matrix of %s and the refused share is %v, want 1", seed, total.Setting, sum)
			}
		}
	}
	if unknown < 500 || refused < 500 || keys < 500 {
		t.Errorf("too few cases: %d with unknown zones, %d with refusals, %d with keys", unknown, refused, keys)
	}
}

// replaceService is a Change that replaces a Service.
type replaceService struct{ *corev1.Service }

func (r replaceService) apply(c *Cluster, rehinted map[model.ObjectName]bool) error {
	rehinted[nameOf(r.Service)] = true
	return c.changeService(nameOf(r.Service), func(service *corev1.Service) { *service = *r.Service })
}

// patched returns a Service after `kubectl patch` with some YAML.
func patched(t *testing.T, service *corev1.Service, patch string) *corev1.Service {
	t.Helper()
	original, err := json.Marshal(service)
	if err != nil {
		t.Fatal(err)
	}
	change, err := yaml.YAMLToJSONStrict([]byte(patch))
	if err != nil {
		t.Fatal(err)
	}
	text, err := strategicpatch.StrategicMergePatch(original, change, corev1.Service{})
	if err != nil {
		t.Fatal(err)
	}
	var changed corev1.Service
	if err := json.Unmarshal(text, &changed); err != nil {
		t.Fatal(err)
	}
	return &changed
}

// TestAdviceMatchesItsForecast: following the advice leads to the forecast, and the same advice is not repeated.
func TestAdviceMatchesItsForecast(t *testing.T) {
	adviceCounts, removed := map[string]int{}, 0
	for seed := range uint64(1500) {
		cluster := NewCluster(newGenerator(seed).hintedCluster(), convert.View{})
		options := Options{Now: time.Now(), Bounds: []uint64{120}}
		report, _ := Compute(cluster, options)
		for i := range report.Services {
			service := &report.Services[i]
			if service.Advice == nil {
				continue
			}
			if service.Advice.Patch == "" {
				t.Errorf("seed %d: %s: %s is set already: %s", seed, service.Service, service.Advice.Setting, service.Advice.Sentence)
				continue
			}
			namespace, name, _ := strings.Cut(service.Service, "/")
			object := cluster.Service(model.ObjectName{Namespace: namespace, Name: name})
			after, err := cluster.Apply([]Change{replaceService{patched(t, object, service.Advice.Patch)}})
			if err != nil {
				t.Fatal(err)
			}
			options.Only = explain.Query{Service: nameOf(object)}
			newReport, _ := Compute(after, options)
			options.Only = explain.Query{}
			promised, got := service.projection(service.Advice.Setting), &newReport.Services[0].Projections[0]
			if promised.Shares != got.Shares || promised.Busiest.Load != got.Busiest.Load {
				t.Fatalf("seed %d: %s: %s\n%spromised %+v, got %+v", seed, service.Service, service.Advice.Sentence, service.Advice.Patch, promised,
					got)
			}
			if again := newReport.Services[0].Advice; again != nil && again.Setting == service.Advice.Setting {
				t.Errorf("seed %d: %s is advised again: %s", seed, again.Setting, again.Sentence)
			}
			adviceCounts[service.Advice.Setting]++
			if strings.Contains(service.Advice.Patch, "null") {
				removed++
			}
		}
	}
	if adviceCounts["PreferSameZone"] < 20 || adviceCounts["120%"] < 30 || removed < 5 {
		t.Errorf("too few cases: advice %v, of which %d removed a setting", adviceCounts, removed)
	}
}

// TestBeforeAndAfterHaveOneReference: loads are multiples of the mean before the changes, so the loads of a Service
// grow like its connections that are not refused.
func TestBeforeAndAfterHaveOneReference(t *testing.T) {
	compared, byClients := 0, 0
	for seed := range uint64(1500) {
		objects := newGenerator(seed).hintedCluster()
		before := NewCluster(objects, convert.View{})
		changes := []Change{
			Evacuate{Selector: mustSelect(t, "example.com/rack=1")},
			Annotate{model.ObjectName{Namespace: "shop", Name: "web-1"}, "vicinity.dev/max-load", "130%"},
			Annotate{model.ObjectName{Namespace: "shop", Name: "web-1"}, "vicinity.dev/clients", "shop/web-0"},
		}
		after, err := before.Apply(changes)
		if err != nil {
			continue // no node is evacuated
		}
		beforeReport, afterReport, _ := Compare(before, after, Options{Now: time.Now()})
		alone, _ := Compute(after, Options{Now: time.Now(), OnlyNow: true})
		for i := range beforeReport.Services {
			projectionBefore, projectionAfter, single := &beforeReport.Services[i].Projections[0], &afterReport.Services[i].Projections[0],
				&alone.Services[i].Projections[0]
			if sum(projectionBefore.Loads) == 0 || sum(projectionAfter.Loads) == 0 {
				continue // no endpoint is usable, so there is no mean
			}
			compared++
			ratio := (1 - projectionAfter.Refused) / (1 - projectionBefore.Refused)
			if !isAbout(sum(projectionAfter.Loads)/sum(projectionBefore.Loads), ratio) {
				t.Errorf("seed %d: %s: loads before %v and after %v, but the served connections grow by a factor of %v",
					seed, beforeReport.Services[i].Service, projectionBefore.Loads, projectionAfter.Loads, ratio)
			}
			for e := range projectionAfter.Loads {
				if !isAbout(projectionAfter.Loads[e]/sum(projectionAfter.Loads), single.Loads[e]/sum(single.Loads)) {
					t.Errorf("seed %d: the shares of endpoints depend on the reference: %v, %v", seed, projectionAfter.Loads, single.Loads)
				}
			}
			if beforeReport.Services[i].Service == "shop/web-1" && projectionAfter.Shares == single.Shares {
				byClients++
			}
		}
		if t.Failed() {
			return
		}
	}
	if compared < 500 || byClients < 100 {
		t.Errorf("compared only %d Services, %d of them with named clients", compared, byClients)
	}
}

func sum(loads []float64) (all float64) {
	for _, load := range loads {
		all += load
	}
	return all
}

func mustSelect(t *testing.T, text string) labels.Selector {
	t.Helper()
	selector, err := labels.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return selector
}
