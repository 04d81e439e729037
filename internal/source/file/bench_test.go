package file

import (
	"bytes"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/fairlead/fairlead/internal/model"
)

// many is a file of n Services with 10 endpoints each.
func many(n int, asJSON bool) []byte {
	var out bytes.Buffer
	for i := range n {
		endpoints := make([]string, 10)
		for j := range endpoints {
			endpoints[j] = fmt.Sprintf("10.%d.%d.%d", i>>8&255, i&255, j)
		}
		name := fmt.Sprintf("svc-%d", i)
		for _, text := range []string{service(name, fmt.Sprintf("10.96.%d.%d", i>>8&255, i&255)), slice(name+"-1", name, endpoints...)} {
			if !asJSON {
				out.WriteString("---\n" + text)
				continue
			}
			data, err := yaml.YAMLToJSON([]byte(text))
			if err != nil {
				panic(err)
			}
			out.Write(append(data, '\n'))
		}
	}
	return out.Bytes()
}

// BenchmarkRead reads 1000 Services and their slices from scratch, and again
// with one of them changed.
func BenchmarkRead(b *testing.B) {
	for _, format := range []string{"yaml", "json"} {
		text := many(1000, format == "json")
		changed := bytes.Replace(text, []byte("10.3.200.7"), []byte("10.3.200.77"), 1)
		sink := func(model.Event) {}
		b.Run(format+"/scratch", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				f := newFolder(Config{Dir: "/nonexistent", Log: slog.New(slog.DiscardHandler)})
				f.read(&manifest{name: "f"}, text, time.Now(), isWhole)
				f.flush(time.Now(), sink)
			}
		})
		b.Run(format+"/one", func(b *testing.B) {
			f := newFolder(Config{Dir: "/nonexistent", Log: slog.New(slog.DiscardHandler)})
			m := &manifest{name: "f"}
			f.read(m, text, time.Now(), isWhole)
			f.flush(time.Now(), sink)
			b.ReportAllocs()
			for b.Loop() {
				f.read(m, changed, time.Now(), isWhole)
				f.flush(time.Now(), sink)
				text, changed = changed, text
			}
		})
	}
}
