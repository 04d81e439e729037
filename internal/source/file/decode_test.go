package file

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/model"
)

// TestBadInput is issue 2's list: each mistake is one clear line that names object
// and field, and the valid Service next to it works.
func TestBadInput(t *testing.T) {
	cases := []struct {
		name, text string
		want       []string
	}{
		{"nothing wrong", service("x", "10.96.0.1"), nil},
		{"malformed YAML", "apiVersion: v1\nkind: Service\nmetadata:\n\tname: x\n",
			[]string{"file bad.yaml:4: found character that cannot start any token"}},
		{"malformed JSON", `{"apiVersion": "v1", "kind": "Service",`,
			[]string{"file bad.yaml:1: did not find expected node content"}},
		{"line counts from the top", "# a\n---\n# b\n---\nkind: [\n",
			[]string{"file bad.yaml:5: did not find expected node content"}},
		{"unknown kind", "apiVersion: v1\nkind: Servise\nmetadata: {name: x}\n", []string{"file bad.yaml:1: unknown kind Servise: ignored"}},
		{"somebody's kind", "apiVersion: example.com/v1\nkind: Thing\nmetadata: {name: x}\n",
			[]string{`file bad.yaml:1: unknown kind Thing (apiVersion "example.com/v1"): ignored`}},
		{"other programs' kinds", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\n---\napiVersion: v1\nkind: Pod\n", nil},
		{"old version", "apiVersion: discovery.k8s.io/v1beta1\nkind: EndpointSlice\nmetadata: {name: x}\n", []string{
			`file bad.yaml:1: EndpointSlice of apiVersion "discovery.k8s.io/v1beta1" is not read: the apiVersion must be discovery.k8s.io/v1`}},
		{"Endpoints", "apiVersion: v1\nkind: Endpoints\nmetadata: {name: x}\n",
			[]string{"file bad.yaml:1: Endpoints are not read: write an EndpointSlice"}},
		{"no kind", "metadata: {name: x}\n", []string{"file bad.yaml:1: not a Kubernetes object: kind is missing"}},
		{"no object", "just text\n", []string{
			"file bad.yaml:1: not a Kubernetes object: cannot unmarshal string into Go value of type file.head"}},
		{"a name that YAML reads as true", service("y", "10.96.0.1"), []string{
			"file bad.yaml:1: not a Kubernetes object: metadata.name: a bool cannot be the value of this field (string)"}},
		{"no name", "---\napiVersion: v1\nkind: Service\n", []string{"file bad.yaml:1: Service: metadata.name is missing"}},
		{"name that is none", service("My_App", "10.96.0.1") + "---\n" + service(strings.Repeat("x", 64), "10.96.0.2") + "---\n" + service(`"a\x1b[2J"`, "10.96.0.3"), []string{
			`file bad.yaml:1: Service: metadata.name: "My_App" is not a DNS label (lower case letters, digits and '-', at most 63 characters): the object is not used`,
			`file bad.yaml:7: Service: metadata.name: "` + strings.Repeat("x", 64) + `" is not a DNS label (lower case letters, digits and '-', at most 63 characters): the object is not used`,
			`file bad.yaml:14: Service: metadata.name: "a\x1b[2J" is not a DNS label (lower case letters, digits and '-', at most 63 characters): the object is not used`}},
		{"namespace that is none", strings.Replace(service("x", "10.96.0.1"), "name: x", `name: x, namespace: "a.b"`, 1), []string{
			`file bad.yaml:1: Service: metadata.namespace: "a.b" is not a DNS label (lower case letters, digits and '-', at most 63 characters): the object is not used`}},
		{"slice whose name is none", slice("x..y", "good", "10.0.0.1") + "---\n" + slice("x.y", "good", "10.0.0.1"), []string{
			`file bad.yaml:1: EndpointSlice: metadata.name: "x..y" is not a DNS subdomain (lower case letters, digits, '-' and '.', at most 253 characters): the object is not used`}},
		{"misspelt field", strings.Replace(service("x", "10.96.0.1"), "  ports:", "  externalIps: [1.2.3.4]\n  ports:", 1),
			[]string{"Service default/x: spec.externalIps: unknown field"}},
		{"key twice", service("x", "10.96.0.1") + "kind: Service\n", []string{`file bad.yaml:7: key "kind" already set in map`}},
		{"wrong type", strings.Replace(service("x", "10.96.0.1"), "port: 80", `port: "80"`, 1), []string{
			"Service default/x: spec.ports.port: a string cannot be the value of this field (int32)",
			"Service default/x: spec.ports[0].port: 0 is not a port"}},
		{"unreadable value", "apiVersion: v1\nkind: Service\nmetadata: {name: x, creationTimestamp: soon}\n", []string{
			`file bad.yaml:1: Service default/x: parsing time "soon" as "2006-01-02T15:04:05Z07:00": cannot parse "soon" as "2006"`}},
		{"bad IP", service("x", "10.96.0.1000"), []string{`Service default/x: spec.clusterIP: "10.96.0.1000" is not an IP address`}},
		{"wrong family", slice("x", "good", "fd00::1"), []string{
			"EndpointSlice default/x: endpoints[0].addresses[0]: not of addressType IPv4: 1 of 1 endpoints are not used"}},
		{"port 0", strings.Replace(slice("x", "good", "10.0.0.1"), "8080", "0", 1), []string{"EndpointSlice default/x: ports[0].port: 0 is not a port"}},
		{"twice in a file", service("x", "10.96.0.1") + "---\n" + service("x", "10.96.0.2"),
			[]string{"file bad.yaml:7: Service default/x is defined twice in this file: the definition in line 1 is used"}},
		{"defined elsewhere", service("good", "10.96.0.66"), []string{"Service default/good: also defined in good.yaml: the definition in bad.yaml is used"}},
		{"list", "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Service, metadata: {name: x}}\n", []string{
			"Service default/x: spec.clusterIP: missing: without an API server none is assigned; write the address"}},
		{"empty list", "apiVersion: v1\nkind: List\nitems:\n", nil},
		{"typed list", `{"apiVersion":"v1","kind":"ServiceList","items":[{"metadata":{"name":"x"},"spec":{"clusterIP":"bad"}}]}`, []string{
			`Service default/x: spec.clusterIP: "bad" is not an IP address`}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, "bad.yaml", c.text)
			write(t, dir, "good.yaml", service("good", "10.96.0.77"))
			l := newListener()
			f := newFolder(Config{Dir: dir, NodeName: "n1", Log: slog.New(slog.DiscardHandler)})
			f.scan(time.Now(), looked, none)
			f.flush(time.Now(), l.put)
			delete(l.problems, f.origin()) // that the folder is not complete, of which complete_test.go is about
			if got := l.allProblems(); !slices.Equal(got, c.want) {
				t.Errorf("problems\n got %q\nwant %q", got, c.want)
			}
			if l.services["default/good"] == nil {
				t.Error("the good Service is not there")
			}
		})
	}
}

// An object that has become unreadable keeps its last good definition, while
// the rest of its file goes on.
func TestObjectKeepsLastGood(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.yaml", service("a", "10.96.0.1")+"---\n"+service("b", "10.96.0.2"))
	l := start(t, dir, nil)
	write(t, dir, "a.yaml", strings.Replace(service("a", "10.96.0.9"), "port: 80", "port: eighty", 1)+"---\n"+service("b", "10.96.0.3"))
	l.until(t, "b's change", func() bool { return l.services["default/b"].ClusterIPs[0].String() == "10.96.0.3" })
	l.until(t, "a's mistake", func() bool {
		return slices.Contains(l.allProblems(), "Service default/a: spec.ports.port: a string cannot be the value of this field (int32)")
	})
	l.now(func() {
		if a := l.services["default/a"]; a.ClusterIPs[0].String() != "10.96.0.1" || a.Ports[0].Port != 80 {
			t.Errorf("a is %+v", a)
		}
	})
	write(t, dir, "a.yaml", service("a", "10.96.0.9")+"---\n"+service("b", "10.96.0.3"))
	l.until(t, "a corrected", func() bool {
		return l.services["default/a"].ClusterIPs[0].String() == "10.96.0.9" && len(l.problems) == 0
	})
}

// When the file that counts goes, the other one's definition takes over.
func TestOtherFileTakesOver(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.yaml", service("x", "10.96.0.1"))
	write(t, dir, "b.yaml", service("x", "10.96.0.2"))
	write(t, dir, "c.yaml", service("x", "10.96.0.3"))
	l := start(t, dir, nil)
	l.now(func() {
		if l.services["default/x"].ClusterIPs[0].String() != "10.96.0.1" || !slices.Equal(l.allProblems(), []string{
			"Service default/x: also defined in b.yaml: the definition in a.yaml is used", "Service default/x: also defined in c.yaml: the definition in a.yaml is used"}) {
			t.Fatalf("got %q", l.allProblems())
		}
	})
	remove(t, filepath.Join(dir, "c.yaml"))
	swap(t, dir, "a.yaml", service("z", "10.96.0.3"))
	l.until(t, "b's definition", func() bool {
		return l.services["default/x"].ClusterIPs[0].String() == "10.96.0.2" && len(l.problems) == 0
	})
}

// The removal of a Service is delivered before the other Services, whatever their names are: one of them may have
// its addresses.
func TestGoneServicesComeFirst(t *testing.T) {
	dir := t.TempDir()
	f := newFolder(Config{Dir: dir, NodeName: "n1", Log: slog.New(slog.DiscardHandler)})
	var told []string
	look := func() {
		told = nil
		f.scan(time.Now(), isWhole, none)
		f.flush(time.Now(), func(e model.Event) {
			if e.Service != nil {
				told = append(told, e.Service.Key.Name)
			}
		})
	}
	write(t, dir, "old.yaml", service("old", "10.96.0.1")+"---\n"+service("stays", "10.96.0.2"))
	look()
	f.forget("old.yaml", time.Now(), isClosed)
	write(t, dir, "old.yaml", service("new", "10.96.0.1")+"---\n"+service("stays", "10.96.0.3"))
	look()
	if want := []string{"old", "new", "stays"}; !slices.Equal(told, want) {
		t.Errorf("told of %q, want %q", told, want)
	}
}

// ServiceCIDRs are delivered as one object: the ranges of all files, each once, and the
// Problems of each.
func TestServiceCIDRsOfSeveralFiles(t *testing.T) {
	dir := t.TempDir()
	f := newFolder(Config{Dir: dir, NodeName: "n1", Log: slog.New(slog.DiscardHandler)})
	cidr := func(name, ranges string) string {
		return "apiVersion: networking.k8s.io/v1\nkind: ServiceCIDR\nmetadata: {name: " + name + "}\nspec: {cidrs: [" + ranges + "]}\n"
	}
	for _, c := range []struct{ file, text, want string }{
		{"a.yaml", cidr("a", "10.96.0.0/16"), "[10.96.0.0/16] 0"},
		{"b.yaml", cidr("b", "10.96.0.0/16, fd00::/112") + "---\n" + cidr("c", "10.97.0.0/16, bad"), "[10.96.0.0/16 10.97.0.0/16 fd00::/112] 1"},
		{"a.yaml", cidr("d", "10.98.0.0/16, worse"), "[10.96.0.0/16 10.97.0.0/16 10.98.0.0/16 fd00::/112] 2"},
	} {
		write(t, dir, c.file, c.text)
		got := ""
		f.scan(time.Now(), isWhole, none)
		f.refresh(c.file, time.Now(), isWhole)
		f.flush(time.Now(), func(e model.Event) {
			if e.CIDRs != nil {
				got = fmt.Sprint(e.CIDRs.Prefixes, len(e.Problems))
			}
		})
		if got != c.want {
			t.Errorf("after %s: %s, want %s", c.file, got, c.want)
		}
	}
}

// For DNS, Services without a proxy are of interest; else they are not.
func TestHeadless(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.yaml", service("h", "None")+"---\n"+
		strings.Replace(slice("h-1", "h", "10.0.0.1"), "{kube", "{service.kubernetes.io/headless: \"\", kube", 1))
	for _, headless := range []bool{false, true} {
		l := start(t, dir, func(c *Config) { c.Headless = headless })
		if (len(l.services) == 1) != headless || (len(l.slices) == 1) != headless || len(l.problems) != 0 {
			t.Errorf("headless %t: %d services, %d slices, %v", headless, len(l.services), len(l.slices), l.problems)
		}
	}
}

func TestSplit(t *testing.T) {
	cases := []struct {
		name, text string
		lines      []int
	}{
		{"one", "a: 1\n", []int{1}},
		{"separator first", "---\na: 1\n", []int{1}},
		{"comments and blanks", "# x\n\n---\na: 1\n---\n# nothing\n---\nb: 2", []int{3, 7}},
		{"carriage returns", "a: 1\r\n---\r\nb: 2\r\n", []int{1, 2}},
		{"dashes that are no separator", "a: |\n  ---\nb: x\n----: 1\n", []int{1}},
		{"JSON after JSON", "{\n\"a\":1}\n\n{\"b\":2}\n", []int{1, 4}},
		{"YAML with a brace", "{a: 1}\n---\nb: 2\n", []int{1, 2}},
		{"byte order mark", "\xef\xbb\xbfa: 1\n", []int{1}},
		{"nothing", "\n# x\n---\n...\n", nil},
	}
	for _, c := range cases {
		var got []int
		for _, d := range split([]byte(c.text)) {
			got = append(got, d.line)
		}
		if !slices.Equal(got, c.lines) {
			t.Errorf("%s: documents begin at lines %v, want %v", c.name, got, c.lines)
		}
	}
}

// A large file that changes in one place costs one document and one event.
func TestOneDocumentOfMany(t *testing.T) {
	dir := t.TempDir()
	text := func(changed string) string {
		var b strings.Builder
		for i := range 500 {
			b.WriteString("---\n")
			if i == 250 {
				b.WriteString(slice("changed", "web", changed))
				continue
			}
			b.WriteString(service("s"+strings.Repeat("x", i%50)+string(rune('a'+i/50)), "10.96.0.1"))
		}
		return b.String()
	}
	f := newFolder(Config{Dir: dir, Log: slog.New(slog.DiscardHandler)})
	var events []model.Event
	sink := func(e model.Event) { events = append(events, e) }
	write(t, dir, "a.yaml", text("10.0.0.1"))
	f.scan(time.Now(), looked, none)
	f.flush(time.Now(), sink)
	if len(events) != 500 {
		t.Fatalf("%d events of the first reading", len(events))
	}
	known, told := f.files["a.yaml"].objects[0], events[0].Service.Value
	events = nil
	write(t, dir, "a.yaml", text("10.0.0.2"))
	f.refresh("a.yaml", time.Now(), isClosed)
	f.flush(time.Now(), sink)
	if len(events) != 1 || events[0].Slice == nil || events[0].Trigger.IsZero() {
		t.Errorf("events of the change: %+v", events)
	}
	if f.files["a.yaml"].objects[0] != known || known.service != told {
		t.Error("a document that did not change was decoded again")
	}
}
