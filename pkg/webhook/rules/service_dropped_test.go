package rules

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestAFieldIsMisplacedWhereverItIsButInSpec puts each field about traffic into each object of a Service that has all
// fields that there are. Maps whose keys users choose have it as a key already.
func TestAFieldIsMisplacedWhereverItIsButInSpec(t *testing.T) {
	var service corev1.Service
	fill(reflect.ValueOf(&service).Elem())
	text, err := json.Marshal(service)
	if err != nil {
		t.Fatal(err)
	}
	if found := misplacedFields(text); len(found) > 0 || !strings.Contains(string(text), `{"trafficDistribution":"x"}`) {
		t.Errorf("fields of Kubernetes are taken for misplaced: %v in %s", found, text)
	}
	var object map[string]any
	if err := json.Unmarshal(text, &object); err != nil {
		t.Fatal(err)
	}
	places := 0
	eachObject("", object, func(path string, in map[string]any) {
		for _, name := range append(trafficFields, "trafficdistribution", "internal-traffic-policy") {
			before, isField := in[name]
			in[name] = "x"
			edited, err := json.Marshal(object)
			if err != nil {
				t.Fatal(err)
			}
			want := strings.TrimPrefix(path+"."+name, ".")
			if found := misplacedFields(edited); path == "spec" && isField && len(found) > 0 ||
				!isField && (len(found) != 1 || found[0].path != want) {
				t.Errorf("%s: found %v", want, found)
			}
			places++
			if delete(in, name); isField {
				in[name] = before
			}
		}
	})
	if places < 50 {
		t.Errorf("only %d places were tried", places)
	}
}

// fill sets everything below a value.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[metav1.Time]() {
			return
		}
		for _, inside := range v.Fields() {
			fill(inside)
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes([]byte(`{"f:spec":{"f:trafficDistribution":{},"trafficDistribution":{}}}`)) // of managedFields
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Map:
		v.Set(reflect.ValueOf(map[string]string{"trafficDistribution": "x"}))
	case reflect.String:
		v.SetString("x")
	case reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Bool:
		v.SetBool(true)
	default:
		panic("a Service has a field of kind " + v.Kind().String())
	}
}

// eachObject visits the objects below a value whose keys are names of fields.
func eachObject(path string, value any, do func(path string, in map[string]any)) {
	switch value := value.(type) {
	case map[string]any:
		do(path, value)
		for name, below := range value {
			if at := strings.TrimPrefix(path+"."+name, "."); !strings.Contains(strings.Join(withKeysOfUsers, " "), at) || at == "spec" ||
				at == "metadata" {
				eachObject(at, below, do)
			}
		}
	case []any:
		for _, item := range value {
			eachObject(path+"[0]", item, do)
		}
	}
}

// TestAnyTextWithAMisplacedFieldIsDecoded: the check that spares other texts from decoding sees through escapes, case
// and dashes.
func TestAnyTextWithAMisplacedFieldIsDecoded(t *testing.T) {
	for name, isFound := range map[string]bool{
		"trafficDistribution": true, `\u0074rafficDistribution`: true, "Internal_Traffic-Policy": true, "traffic": false, "nodePort": false,
	} {
		text := []byte(`{"spec": {"ports": [{"` + name + `": "Local"}]}}`)
		if found := misplacedFields(text); (len(found) == 1) != isFound {
			t.Errorf("%s: found %v", text, found)
		}
	}
	text := `{"apiVersion":"v1","kind":"Service","metadata":{"name":"web"},"spec":{"ports":[{"port":80}]}}`
	if mayHaveTrafficField([]byte(text)) {
		t.Errorf("%s is decoded", text)
	}
}
