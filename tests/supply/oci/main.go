// Command registry is go-containerregistry's own registry on loopback, and its client, which pushes models to it.
//
// It prints "port N" and serves until its input ends. Each line of input is an artifact in JSON; once it is pushed, the
// line "pushed DIGEST" follows. Two flags say what an account is and how long a token is good.
package main

import (
	"bufio"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

var (
	account = flag.String("account", "", "USER:PASSWORD that may write, and read what is below private/")
	basic   = flag.Bool("basic", false, "ask for the account itself, not for a token")
	uses    = flag.Int("uses", 0, "blobs that a token is good for; 0: all")
)

// gate asks for tokens as the distribution specification has it.
type gate struct {
	next   http.Handler
	lock   sync.Mutex
	tokens map[string]*grant
}

type grant struct {
	write, private bool
	blobs          int
}

func (g *gate) token(w http.ResponseWriter, r *http.Request) {
	user, password, given := r.BasicAuth()
	known := given && user+":"+password == *account
	if given && !known {
		http.Error(w, `{"errors":[{"code":"UNAUTHORIZED"}]}`, http.StatusUnauthorized)
		return
	}
	bytes := make([]byte, 16)
	if _, err := rand.Read(bytes); err != nil {
		log.Fatal(err)
	}
	token := hex.EncodeToString(bytes)
	g.lock.Lock()
	g.tokens[token] = &grant{write: known, private: known}
	g.lock.Unlock()
	fmt.Fprintf(w, `{"token":%q,"expires_in":300}`, token)
}

func (g *gate) allows(r *http.Request) bool {
	write, private := r.Method != http.MethodGet && r.Method != http.MethodHead, strings.HasPrefix(r.URL.Path, "/v2/private/")
	if *basic {
		user, password, given := r.BasicAuth()
		return given && user+":"+password == *account
	}
	g.lock.Lock()
	defer g.lock.Unlock()
	grant := g.tokens[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]
	if grant == nil || (write && !grant.write) || (private && !grant.private) {
		return false
	}
	if !write && strings.Contains(r.URL.Path, "/blobs/") {
		grant.blobs++
		return *uses == 0 || grant.blobs <= *uses
	}
	return true
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if *account == "" {
		g.next.ServeHTTP(w, r)
	} else if r.URL.Path == "/token" {
		g.token(w, r)
	} else if g.allows(r) {
		g.next.ServeHTTP(w, r)
	} else {
		challenge := fmt.Sprintf(`Bearer realm="http://%s/token",service="the registry",scope="repository:%s:pull"`, r.Host, repositoryOf(r.URL.Path))
		if *basic {
			challenge = `Basic realm="the registry"`
		}
		w.Header().Set("WWW-Authenticate", challenge)
		http.Error(w, `{"errors":[{"code":"UNAUTHORIZED"}]}`, http.StatusUnauthorized)
	}
}

func repositoryOf(path string) string {
	path = strings.TrimPrefix(path, "/v2/")
	for _, kind := range []string{"/manifests/", "/blobs/"} {
		if at := strings.Index(path, kind); at >= 0 {
			return path[:at]
		}
	}
	return path
}

type layer struct {
	Path, MediaType string
	Annotations     map[string]string
}

type artifact struct {
	Name, ConfigType, Config string
	Layers                   []layer
	Index                    bool // of this image alone, with an attestation beside it
}

func imageOf(a artifact) (v1.Image, error) {
	image := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	for _, l := range a.Layers {
		data, err := os.ReadFile(l.Path)
		if err != nil {
			return nil, err
		}
		image, err = mutate.Append(image, mutate.Addendum{
			Layer: static.NewLayer(data, types.MediaType(l.MediaType)), MediaType: types.MediaType(l.MediaType), Annotations: l.Annotations})
		if err != nil {
			return nil, err
		}
	}
	return withConfig{image, []byte(a.Config), types.MediaType(a.ConfigType)}, nil
}

// withConfig is an image whose config is a text of one's own.
type withConfig struct {
	v1.Image
	text []byte
	kind types.MediaType
}

func (c withConfig) RawConfigFile() ([]byte, error) { return c.text, nil }
func (c withConfig) ConfigName() (v1.Hash, error)   { return partial.ConfigName(c) }
func (c withConfig) Digest() (v1.Hash, error)       { return partial.Digest(c) }
func (c withConfig) Size() (int64, error)           { return partial.Size(c) }
func (c withConfig) RawManifest() ([]byte, error)   { return partial.RawManifest(c) }
func (c withConfig) Manifest() (*v1.Manifest, error) {
	manifest, err := c.Image.Manifest()
	if err != nil {
		return nil, err
	}
	manifest = manifest.DeepCopy()
	digest, err := c.ConfigName()
	manifest.Config = v1.Descriptor{MediaType: c.kind, Size: int64(len(c.text)), Digest: digest}
	return manifest, err
}

func push(a artifact) (v1.Hash, error) {
	ref, err := name.ParseReference(a.Name)
	if err != nil {
		return v1.Hash{}, err
	}
	image, err := imageOf(a)
	if err != nil {
		return v1.Hash{}, err
	}
	option := remote.WithAuth(authn.Anonymous)
	if user, password, given := strings.Cut(*account, ":"); given {
		option = remote.WithAuth(&authn.Basic{Username: user, Password: password})
	}
	if !a.Index {
		if err := remote.Write(ref, image, option); err != nil {
			return v1.Hash{}, err
		}
		return image.Digest()
	}
	nowhere := v1.Descriptor{Platform: &v1.Platform{OS: "unknown", Architecture: "unknown"}}
	index := mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex),
		mutate.IndexAddendum{Add: empty.Image, Descriptor: nowhere}, mutate.IndexAddendum{Add: image})
	if err := remote.WriteIndex(ref, index, option); err != nil {
		return v1.Hash{}, err
	}
	return index.Digest()
}

func main() {
	flag.Parse()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	quiet := registry.Logger(log.New(io.Discard, "", 0))
	handler := &gate{next: registry.New(quiet), tokens: map[string]*grant{}}
	go func() { log.Fatal(http.Serve(listener, handler)) }()
	fmt.Printf("port %d\n", listener.Addr().(*net.TCPAddr).Port)
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var a artifact
		if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
			log.Fatal(err)
		}
		digest, err := push(a)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("pushed %s\n", digest)
	}
}
