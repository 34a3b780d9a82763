package apiserver

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// version is a version of Service web.
type version struct {
	port           int32
	label          string // of its proxy; empty for none
	uid            string // empty for the usual one
	isExternalName bool
	isBad          bool
}

func (v version) service(number int) *corev1.Service {
	service := webService()
	service.ResourceVersion = fmt.Sprint(number)
	service.Spec.Ports[0].Port = v.port
	if v.uid != "" {
		service.UID = types.UID(v.uid)
	}
	if v.label != "" {
		service.Labels = map[string]string{policy.ServiceProxyNameLabel: v.label}
	}
	if v.isExternalName {
		service.Spec.Type, service.Spec.ClusterIP, service.Spec.ClusterIPs = corev1.ServiceTypeExternalName, "", nil
	}
	if v.isBad {
		service.Spec.Type = "Bad"
	}
	return service
}

// moment is an event of the watch of Services, or none, at a given time after the previous moment, and the updates
// delivered until then.
type moment struct {
	after   time.Duration
	event   watch.EventType
	version version
	want    string
}

// runMoments applies moments to a proxy with a name, or without one.
func runMoments(t *testing.T, proxyName string, moments []moment) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI(time.Millisecond)
		r := run(t, func(options Options) *Watcher {
			options.ServiceProxyName = proxyName
			return api.watcher(options)
		})
		synctest.Wait()
		seen := r.count()
		for at, moment := range moments {
			time.Sleep(moment.after)
			if moment.event != "" {
				api.services <- watch.Event{Type: moment.event, Object: moment.version.service(at + 2)}
			}
			synctest.Wait()
			var words []string
			for _, update := range r.delivered()[seen:] {
				words = append(words, strings.TrimSpace(updateText(update)+problems("!", update.NewProblems)+problems("ok", update.ResolvedProblems)))
			}
			seen += len(words)
			if got := strings.Join(words, "; "); got != moment.want {
				t.Errorf("moment %d (%s): delivered %q, want %q", at, moment.event, got, moment.want)
			}
		}
		r.end(t)
	})
}

// problems returns the mark once for each problem.
func problems(mark string, of []model.Finding) string { return strings.Repeat(" "+mark, len(of)) }

const almost = handoffDelay - time.Millisecond

func TestHandoffToAnotherProxy(t *testing.T) {
	ours, others := version{port: 80}, version{port: 80, label: "other"}
	comes := moment{event: watch.Added, version: ours, want: "service/web:80"}
	leaves := moment{after: time.Hour, event: watch.Modified, version: others}
	// becomes returns another version a second later. By default no update is expected.
	becomes := func(v version) moment { return moment{after: time.Second, event: watch.Modified, version: v} }
	wants := func(m moment, want string) moment { m.want = want; return m }
	external := version{port: 80, label: "other", isExternalName: true}
	bad, stranger := version{port: 80, isBad: true}, version{port: 80, label: "other", uid: "another"}
	const rest = time.Millisecond
	for name, moments := range map[string][]moment{
		"it is handed off":   {comes, leaves, {after: almost}, {after: rest, want: "-service/web"}, {after: time.Hour}},
		"deleted while ours": {comes, {after: time.Hour, event: watch.Deleted, version: ours, want: "-service/web"}},
		"deleted during the handoff": {
			comes, leaves, {after: time.Second, event: watch.Deleted, version: others, want: "-service/web"}, {after: time.Hour},
		},
		"deleted after the handoff": {
			comes, leaves, {after: handoffDelay, want: "-service/web"}, {after: time.Second, event: watch.Deleted, version: others},
		},
		"changes during the handoff are ignored": {
			comes, leaves, becomes(version{port: 81, label: "other"}), becomes(version{port: 82, label: "a third"}),
			{after: almost - 2*time.Second}, {after: rest, want: "-service/web"}, becomes(version{port: 83, label: "other"}),
		},
		"returns unchanged during the handoff": {comes, leaves, {after: almost, event: watch.Modified, version: ours}, {after: time.Hour}},
		"returns changed during the handoff":   {comes, leaves, wants(becomes(version{port: 81}), "service/web:81"), {after: time.Hour}},
		"returns and is handed off again": {
			comes, leaves, becomes(ours), becomes(others), {after: almost}, {after: rest, want: "-service/web"}, {after: time.Hour},
		},
		"returns after the handoff": {
			comes, leaves, {after: handoffDelay, want: "-service/web"}, wants(becomes(ours), "service/web:80"), {after: time.Hour},
		},
		"returns invalid": {comes, leaves, wants(becomes(bad), "!"), {after: time.Hour}},
		"invalid before the handoff": {
			comes, wants(becomes(bad), "!"), wants(becomes(others), "ok"), {after: handoffDelay, want: "-service/web"},
		},
		"loses its ClusterIP at the handoff":     {comes, wants(becomes(external), "-service/web"), {after: time.Hour}},
		"loses its ClusterIP during the handoff": {comes, leaves, wants(becomes(external), "-service/web"), {after: time.Hour}},
		"missed deletion, then another proxy's Service of that name": {
			comes, wants(becomes(stranger), "-service/web"), {after: time.Hour},
		},
		"missed deletion during the handoff": {comes, leaves, wants(becomes(stranger), "-service/web"), {after: time.Hour}},
		"another proxy's becomes ours": {
			{event: watch.Added, version: others}, wants(becomes(ours), "service/web:80"), {after: time.Hour},
		},
		"never ours": {
			{event: watch.Added, version: others}, becomes(version{port: 81, label: "other"}), {after: time.Hour},
			{event: watch.Deleted, version: others},
		},
	} {
		t.Run(name, func(t *testing.T) { runMoments(t, "", moments) })
	}
}

func TestHandoffFromANamedProxy(t *testing.T) {
	named := version{port: 80, label: "vicinity"}
	for name, left := range map[string]version{"no label": {port: 80}, "another name": {port: 80, label: "other"}} {
		t.Run(name, func(t *testing.T) {
			runMoments(t, "vicinity", []moment{
				{event: watch.Added, version: left},
				{after: time.Second, event: watch.Modified, version: named, want: "service/web:80"},
				{after: time.Second, event: watch.Modified, version: left}, {after: almost}, {after: time.Millisecond, want: "-service/web"},
			})
		})
	}
}

// The health check must return when the Service comes back unchanged.
func TestHandoffReleasesHealthCheckPort(t *testing.T) {
	w := newTestState()
	name := nameOf("web")
	service := &model.Service{Name: name, Ports: []model.ServicePort{{Port: 80}}, HealthCheckNodePort: 32000}
	ours, others := &object{name: name, uid: "1", value: service}, &object{name: name, uid: "1", isForOtherProxy: true}
	for _, step := range []struct {
		put  *object
		want uint16
	}{{ours, 32000}, {others, 0}, {ours, 32000}} {
		w.put(convert.Services, step.put)
		update, _ := w.takeUpdate()
		got := update.Change.Services[name]
		if got == nil || got.HealthCheckNodePort != step.want || got.Ports[0].Port != 80 {
			t.Errorf("after %+v the Service is %+v, want health checks at port %d", step.put, got, step.want)
		}
	}
	if service.HealthCheckNodePort != 32000 {
		t.Error("the delivered value was modified")
	}
}

// After an outage of the API server, the Services in the list that belong to another proxy are handed off, and missing
// ones were deleted.
func TestListDuringHandoff(t *testing.T) {
	of := func(name string, isOthers bool) *object {
		o := &object{name: nameOf(name), isForOtherProxy: isOthers}
		if !isOthers {
			o.value = &model.Service{Name: nameOf(name), Ports: []model.ServicePort{{Port: 1}}}
		}
		return o
	}
	runSteps(t,
		step{"a list", func(w *testState) {
			w.replace(convert.Services, []*object{of("a", false), of("b", false), of("c", false), of("d", false)})
		}, "service/a:1 service/b:1 service/c:1 service/d:1"},
		step{"in the next list two belong to another proxy and one is missing", func(w *testState) {
			w.replace(convert.Services, []*object{of("a", true), of("b", true), of("c", false)})
			w.wait(handoffDelay / 2)
		}, "-service/d"},
		step{"one of the two is missing", func(w *testState) { w.replace(convert.Services, []*object{of("b", true), of("c", false)}) }, "-service/a"},
		step{"the handoff ends", func(w *testState) { w.wait(handoffDelay / 2) }, "-service/b"},
		step{"no state remains", func(w *testState) {
			if w.handoffs.Len() > 0 || len(w.objects[convert.Services]) != 1 {
				t.Errorf("%v handoffs and objects %v remain", w.handoffs.Len(), w.objects[convert.Services])
			}
		}, ""},
	)
}
