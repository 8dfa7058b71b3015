// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func file(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

func TestMistakesAreReportedBeforeAnythingIsSent(t *testing.T) {
	for name, c := range map[string]struct {
		cfg  Config
		want string
	}{
		"no scheme":          {Config{URL: "pyroscope:4040"}, "want http://HOST[:PORT]"},
		"address":            {Config{URL: "127.0.0.1:4040"}, "want http://HOST[:PORT]"},
		"empty":              {Config{}, "want http://HOST[:PORT]"},
		"no host":            {Config{URL: "http://"}, "no host"},
		"not a URL":          {Config{URL: "http://a b"}, "want http://HOST[:PORT]"},
		"bad port":           {Config{URL: "http://a:b:c"}, "want http://HOST[:PORT]"},
		"password in URL":    {Config{URL: "https://me:secret@host"}, "can be read by every user"},
		"bad, with password": {Config{URL: "https://me:secret@host:port"}, "want http://HOST[:PORT]"},
		"query":              {Config{URL: "http://host/?a=b"}, "no query is possible"},
		"user alone":         {Config{URL: "http://host", User: "me"}, "a user needs a password"},
		"password alone":     {Config{URL: "http://host", Password: "secret"}, "a user needs a password"},
		"both":               {Config{URL: "http://host", User: "me", Password: "secret", Token: "t"}, "either a user or a token"},
		"no token file":      {Config{URL: "http://host", TokenFile: "/none"}, "open /none"},
		"token is a folder":  {Config{URL: "http://host", TokenFile: t.TempDir()}, "is a directory"},
		"empty token":        {Config{URL: "http://host", TokenFile: file(t, "\n")}, "is empty"},
		"token of two lines": {Config{URL: "http://host", TokenFile: file(t, "a\nX-Evil: b\n")}, "not one line"},
		"huge token":         {Config{URL: "http://host", TokenFile: file(t, strings.Repeat("a", 1<<20))}, "is longer than"},
		"CA without TLS":     {Config{URL: "http://host", CAFile: "/none"}, "needs a URL with https"},
		"no CA file":         {Config{URL: "https://host", CAFile: "/none"}, "open /none"},
		"not a certificate":  {Config{URL: "https://host", CAFile: file(t, "hello")}, "no certificate in"},
		"header":             {Config{URL: "https://host", HeadersFile: file(t, "# mine\n\nX-A: b\nhello\n")}, "line 4: want"},
		"header's name":      {Config{URL: "https://host", HeadersFile: file(t, "X A: b\n")}, "line 1: want"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(c.cfg)
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), "secret")
			require.NotContains(t, err.Error(), "\n")
		})
	}
}

func TestEveryRequestCarriesTheSecretsOfItsTime(t *testing.T) {
	var got []http.Header
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = append(got, r.Header) }))
	defer server.Close()
	token := file(t, "first\n")
	e, err := New(Config{URL: server.URL + "/", TokenFile: token, HeadersFile: file(t, "X-Extra: a: b\n"),
		Header: http.Header{"X-Scope-Orgid": {"team"}}})
	require.NoError(t, err)
	require.Equal(t, server.URL, e.URL.String())
	client := e.Client()
	get := func() error {
		response, err := client.Get(e.URL.String())
		if err == nil {
			_, _ = io.Copy(io.Discard, response.Body)
			response.Body.Close()
		}
		return err
	}
	require.NoError(t, get())
	require.NoError(t, os.WriteFile(token, []byte("second"), 0o600))
	require.NoError(t, get())
	require.NoError(t, os.Remove(token))
	require.ErrorContains(t, get(), "no such file")
	require.Len(t, got, 2)
	require.Equal(t, "Bearer first", got[0].Get("Authorization"))
	require.Equal(t, "Bearer second", got[1].Get("Authorization"))
	require.Equal(t, "team", got[0].Get("X-Scope-OrgID"))
	require.Equal(t, "a: b", got[0].Get("X-Extra"))

	e, err = New(Config{URL: server.URL, User: "me", Password: "secret"})
	require.NoError(t, err)
	header, err := e.Header()
	require.NoError(t, err)
	require.Equal(t, "Basic bWU6c2VjcmV0", header.Get("Authorization"))
}

func TestRedirectDoesNotGetTheSecrets(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("got a request") }))
	defer other.Close()
	server := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	defer server.Close()
	e, err := New(Config{URL: server.URL, Token: "secret"})
	require.NoError(t, err)
	response, err := e.Client().Get(server.URL)
	require.NoError(t, err)
	response.Body.Close()
	require.Equal(t, http.StatusTemporaryRedirect, response.StatusCode)
}

func TestSecretsInClearAreNoticed(t *testing.T) {
	for url, want := range map[string]bool{
		"http://pyroscope:4040": true, "http://10.0.0.1": true, "https://pyroscope": false,
		"http://localhost:1": false, "http://127.0.0.1:1": false, "http://[::1]:1": false,
	} {
		e, err := New(Config{URL: url, Token: "secret"})
		require.NoError(t, err)
		require.Equal(t, want, e.SendsSecretsInClear(), url)
	}
	e, err := New(Config{URL: "http://pyroscope"})
	require.NoError(t, err)
	require.False(t, e.SendsSecretsInClear())
}
