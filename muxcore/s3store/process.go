package s3store

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"
)

const (
	processOutput = 64 << 10        // the most that a credential_process may say
	processWait   = 2 * time.Second // for the end of its output, once it has ended
)

var errTalkative = errors.New("it says more than credentials take")

// sharedFiles are the credentials in AWS's shared files. Those of minio-go, but for a credential_process, which that gives all the
// time and memory in the world.
type sharedFiles struct{ credentials.FileAWSCredentials }

// RetrieveWithCredContext implements credentials.Provider.
func (p *sharedFiles) RetrieveWithCredContext(cc *credentials.CredContext) (credentials.Value, error) {
	profile := profileOf(cmp.Or(os.Getenv("AWS_PROFILE"), "default"))
	line := profile["credential_process"]
	if line == "" || profile["aws_access_key_id"]+profile["aws_secret_access_key"]+profile["sso_role_name"]+profile["sso_session"] != "" {
		return p.FileAWSCredentials.RetrieveWithCredContext(cc)
	}
	v, err := runProcess(cc, line)
	if err != nil {
		err = fmt.Errorf("credential_process: %w", err)
	}
	return v, err
}

// profileOf reads a profile of the shared files: what the file of credentials says of it goes before what that of settings says.
func profileOf(name string) map[string]string {
	home, _ := os.UserHomeDir() // without one, the files must be named
	profile := make(map[string]string)
	for _, file := range []struct{ path, section string }{
		{cmp.Or(os.Getenv("AWS_CONFIG_FILE"), filepath.Join(home, ".aws", "config")), "profile " + name},
		{cmp.Or(os.Getenv("AWS_SHARED_CREDENTIALS_FILE"), filepath.Join(home, ".aws", "credentials")), name},
	} {
		text, err := os.ReadFile(file.path)
		if err != nil {
			continue
		}
		section := ""
		for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
			line := strings.TrimSpace(lines.Text())
			if head, ok := strings.CutPrefix(line, "["); ok {
				head, _, _ = strings.Cut(head, "]")
				section = strings.Join(strings.Fields(head), " ")
				continue
			}
			key, value, ok := strings.Cut(line, "=")
			if ok && line[0] != '#' && line[0] != ';' && (section == file.section || section == name && name == "default") {
				profile[strings.TrimSpace(key)] = strings.TrimSpace(value)
			}
		}
	}
	return profile
}

// runProcess has a program give the credentials. It must not take longer than the fetch that it is part of.
func runProcess(cc *credentials.CredContext, line string) (credentials.Value, error) {
	words := split(line)
	if len(words) == 0 {
		return credentials.Value{}, errors.New("no program is named")
	}
	out := &limited{left: processOutput}
	cmd := exec.CommandContext(cc.Context, words[0], words[1:]...) //nolint:gosec // that is what the operator's own file asks for
	cmd.Stdout, cmd.WaitDelay = out, processWait
	err := cmd.Run()
	switch {
	case out.left < 0:
		return credentials.Value{}, errTalkative
	case cc.Context.Err() != nil:
		return credentials.Value{}, errors.New("it takes too long")
	case err != nil:
		return credentials.Value{}, err
	}
	var said struct {
		Version         int
		AccessKeyID     string `json:"AccessKeyId"`
		SecretAccessKey string
		SessionToken    string
		Expiration      time.Time
	}
	if json.Unmarshal(out.buf.Bytes(), &said) != nil || said.Version != 1 { // whose error might quote a secret
		return credentials.Value{}, errors.New("what it says are no credentials of version 1")
	}
	return credentials.Value{
		AccessKeyID: said.AccessKeyID, SecretAccessKey: said.SecretAccessKey, SessionToken: said.SessionToken,
		Expiration: said.Expiration, SignerType: credentials.SignatureV4,
	}, nil
}

// split cuts a line into words, which may stand in double quotes.
func split(line string) (words []string) {
	var word strings.Builder
	quoted, any := false, false
	for _, r := range line + " " {
		switch {
		case r == '"':
			quoted, any = !quoted, true
		case !quoted && (r == ' ' || r == '\t'):
			if any {
				words = append(words, word.String())
			}
			word.Reset()
			any = false
		default:
			word.WriteRune(r)
			any = true
		}
	}
	return words
}

// limited is what a program says, as far as anybody listens.
type limited struct {
	buf  bytes.Buffer
	left int
}

var _ io.Writer = (*limited)(nil)

// Write implements io.Writer.
func (l *limited) Write(p []byte) (int, error) {
	if l.left -= len(p); l.left < 0 {
		return 0, errTalkative
	}
	return l.buf.Write(p)
}
