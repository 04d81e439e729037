package file

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/fairlead/fairlead/internal/model"
	"github.com/fairlead/fairlead/internal/source/convert"
)

// reader converts documents to objects.
type reader struct {
	convert  *convert.Converter
	nodeName string
	headless bool
}

// issue is an error in a document that belongs to no single object.
type issue struct {
	line int // within the document, counted from 0
	text string
}

// parsed is the result of parsing one document.
type parsed struct {
	objects []*object
	issues  []issue
	ignored []string // kinds that this source does not use
	// unreadable: the text is neither YAML nor JSON, or is not an object with kind
	// and name. It is unknown which object it was to define.
	unreadable bool
	kindless   bool // unreadable because it is YAML or JSON without a kind, such as a configuration file of another program
}

// maxDepth limits how deep Lists may be nested.
const maxDepth = 4

// read parses one document. It returns no error: errors are part of the result.
func (r *reader) read(d document) *parsed {
	p := &parsed{}
	text := d.text
	if !d.json {
		converted, err := yaml.YAMLToJSONStrict(text)
		if err != nil {
			// A duplicate key is an error in YAML, but kubectl uses the last value.
			// Report the error and use the last value.
			lenient, lenientErr := yaml.YAMLToJSON(text)
			p.issues = append(p.issues, yamlIssues(err)...)
			if lenientErr != nil {
				p.unreadable = true
				return p
			}
			converted = lenient
		}
		text = converted
	}
	r.readJSON(text, typeMeta{}, 0, p)
	return p
}

var yamlLine = regexp.MustCompile(`^(?:yaml: )?line (\d+): `)

// yamlIssues extracts the line numbers from an error of the YAML parser. One error
// may hold several of them.
func yamlIssues(err error) []issue {
	text := strings.TrimPrefix(err.Error(), "error converting YAML to JSON: ")
	text = strings.TrimPrefix(text, "yaml: unmarshal errors:\n")
	var out []issue
	for part := range strings.SplitSeq(text, "\n") {
		part = strings.TrimSpace(part)
		i := issue{text: strings.TrimPrefix(part, "yaml: ")}
		if m := yamlLine.FindStringSubmatch(part); m != nil {
			if n, err := strconv.Atoi(m[1]); err == nil && n > 0 {
				i = issue{line: n - 1, text: part[len(m[0]):]}
			}
		}
		if i.text != "" {
			out = append(out, i)
		}
	}
	return out
}

// typeMeta holds the fields apiVersion and kind of every object.
type typeMeta struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
}

type head struct {
	typeMeta
	Metadata struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"metadata"`
	Items []json.RawMessage `json:"items"`
}

// readJSON reads one object, or the objects of a List. inherited is the type of the
// items of a typed list, whose items may omit it.
func (r *reader) readJSON(text []byte, inherited typeMeta, depth int, p *parsed) {
	fail := func(format string, args ...any) {
		p.issues = append(p.issues, issue{text: fmt.Sprintf(format, args...)})
	}
	var h head
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &h); err != nil {
		p.unreadable = true
		if problem, ok := typeProblem(err); ok {
			fail("not a Kubernetes object: %s: %s", problem.Field, problem.Reason)
			return
		}
		fail("not a Kubernetes object: %s", strings.TrimPrefix(err.Error(), "json: "))
		return
	}
	if h.typeMeta == (typeMeta{}) {
		h.typeMeta = inherited
	}
	switch {
	case h.Kind == "":
		p.unreadable, p.kindless = true, true
		fail("not a Kubernetes object: kind is missing")
	case h.Kind == "List" || (strings.HasSuffix(h.Kind, "List") && h.Items != nil):
		if depth >= maxDepth {
			fail("lists are nested too deeply")
			return
		}
		items := typeMeta{}
		if h.Kind != "List" {
			items = typeMeta{APIVersion: h.APIVersion, Kind: strings.TrimSuffix(h.Kind, "List")}
		}
		for _, item := range h.Items {
			r.readJSON(item, items, depth+1, p)
		}
	default:
		r.readObject(text, &h, p)
	}
}

// readObject reads one object that is not a list.
func (r *reader) readObject(text []byte, h *head, p *parsed) {
	k, why := kindOf(h.typeMeta)
	switch {
	case why != "":
		p.issues = append(p.issues, issue{text: why})
		return
	case k == 0:
		p.ignored = append(p.ignored, h.Kind)
		return
	case h.Metadata.Name == "":
		p.unreadable = true
		p.issues = append(p.issues, issue{text: h.Kind + ": metadata.name is missing"})
		return
	}
	o := &object{id: id{kind: k, namespace: h.Metadata.Namespace, name: h.Metadata.Name}}
	switch {
	case k == nodeKind || k == cidrKind:
		o.id.namespace = ""
	case o.id.namespace == "":
		o.id.namespace = "default"
	}
	if why := o.id.invalid(); why != "" {
		p.issues = append(p.issues, issue{text: h.Kind + ": " + why + ": the object is not used"})
		return
	}
	if err := r.decode(text, o); err != nil {
		p.issues = append(p.issues, issue{text: fmt.Sprintf("%s: %v", o.id, err)})
		o.suspect = true
	}
	p.objects = append(p.objects, o)
}

// decode converts the object's content. On an error the object has no content.
func (r *reader) decode(text []byte, o *object) error {
	switch o.id.kind {
	case serviceKind:
		return into(text, o, func(s *corev1.Service) {
			s.Namespace = o.id.namespace
			_, foreign := s.Labels[convert.ProxyNameLabel]
			service, problems := r.convert.Service(s)
			if (service.Headless || foreign) && !r.headless {
				return
			}
			o.service, o.problems = service, append(o.problems, problems...)
		})
	case sliceKind:
		return into(text, o, func(s *discoveryv1.EndpointSlice) {
			s.Namespace = o.id.namespace
			_, foreign := s.Labels[convert.ProxyNameLabel]
			slice, problems := r.convert.Slice(s)
			if slice != nil && (slice.Headless || foreign) && !r.headless {
				return
			}
			o.slice, o.problems = slice, append(o.problems, problems...)
		})
	case nodeKind:
		return into(text, o, func(n *corev1.Node) {
			if n.Name != r.nodeName {
				o.suspect, o.problems = false, nil
				return // the Node of another machine
			}
			node, problems := r.convert.Node(n)
			o.node, o.problems = node, append(o.problems, problems...)
		})
	case cidrKind:
		return into(text, o, func(c *networkingv1.ServiceCIDR) {
			cidrs, problems := r.convert.ServiceCIDR(c)
			o.cidrs, o.problems = cidrs, append(o.problems, problems...)
		})
	}
	return errors.New("no such kind") // unreachable: kindOf returns no other kind
}

// into decodes text into a T and passes it to use. Unknown and duplicate fields are
// reported as Problems, and the object is used. An object with a field of a wrong
// type is used too, but is marked as suspect.
func into[T any](text []byte, o *object, use func(*T)) error {
	var v T
	strict, err := kjson.UnmarshalStrict(text, &v)
	if err != nil {
		problem, ok := typeProblem(err)
		if !ok {
			return errors.New(strings.TrimPrefix(err.Error(), "json: "))
		}
		problem.Object = o.id.String()
		o.suspect, o.problems = true, append(o.problems, problem)
	}
	for _, e := range strict {
		p := model.Problem{Object: o.id.String(), Reason: e.Error()}
		var field kjson.FieldError
		if errors.As(e, &field) {
			p.Field = field.FieldPath()
			p.Reason = strings.TrimSuffix(p.Reason, " "+strconv.Quote(p.Field))
		}
		o.problems = append(o.problems, p)
	}
	use(&v)
	return nil
}

// typeProblem parses the text of an UnmarshalTypeError, because sigs.k8s.io/json
// does not export that type. The decoder continues after such an error and decodes
// the other fields.
func typeProblem(err error) (model.Problem, bool) {
	value, rest, ok := strings.Cut(strings.TrimPrefix(err.Error(), "json: cannot unmarshal "), " into Go struct field ")
	if !ok {
		return model.Problem{}, false
	}
	path, kind, ok := strings.Cut(rest, " of type ")
	_, field, dotted := strings.Cut(path, ".")
	if !ok || !dotted {
		return model.Problem{}, false
	}
	return model.Problem{Field: field, Reason: fmt.Sprintf("a %s cannot be the value of this field (%s)", value, kind)}, true
}
