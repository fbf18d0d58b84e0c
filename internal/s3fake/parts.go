package s3fake

import (
	"crypto/md5" // S3's ETag
	"encoding/xml"
	"fmt"
	"net/http"
	"strconv"
)

// upload is an upload by parts that has not ended.
type upload struct {
	place  string // bucket and key
	header http.Header
	parts  map[int][]byte
}

const maxParts = 10_000

func noSuchUpload() *Refusal {
	return Refuse(http.StatusNotFound, "NoSuchUpload", "The specified upload does not exist.")
}

// byParts serves what is about uploads by parts.
func (s *Service) byParts(w http.ResponseWriter, r *http.Request, objects map[string]*object, bucket, key string) *Refusal {
	q, place := r.URL.Query(), bucket+"/"+key
	if q.Has("uploads") && r.Method == http.MethodPost {
		header, refusal := described(r)
		if refusal != nil {
			return refusal
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.made++
		id := fmt.Sprintf("upload-%d", s.made)
		s.uploads[id] = &upload{place: place, header: header, parts: make(map[int][]byte)}
		document(w, struct {
			XMLName               xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ InitiateMultipartUploadResult"`
			Bucket, Key, UploadId string
		}{Bucket: bucket, Key: key, UploadId: id})
		return nil
	}
	id := q.Get("uploadId")
	s.mu.Lock()
	u := s.uploads[id]
	s.mu.Unlock()
	if u == nil || u.place != place {
		return noSuchUpload()
	}
	switch r.Method {
	case http.MethodPut:
		return s.putPart(w, r, id)
	case http.MethodPost:
		return s.complete(w, r, objects, key, id)
	case http.MethodDelete:
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.uploads, id)
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	return Refuse(http.StatusMethodNotAllowed, "MethodNotAllowed", "The specified method is not allowed against this resource.")
}

func (s *Service) putPart(w http.ResponseWriter, r *http.Request, id string) *Refusal {
	n, err := strconv.Atoi(r.URL.Query().Get("partNumber"))
	if err != nil || n < 1 || n > maxParts {
		return Refuse(http.StatusBadRequest, "InvalidArgument", "Part number must be an integer between 1 and 10000, inclusive")
	}
	body, refusal := whole(r)
	if refusal != nil {
		return refusal
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.uploads[id]
	if u == nil {
		return noSuchUpload()
	}
	u.parts[n] = body
	w.Header()["ETag"] = []string{tagOf(body)}
	return nil
}

func (s *Service) complete(w http.ResponseWriter, r *http.Request, objects map[string]*object, key, id string) *Refusal {
	text, refusal := whole(r)
	if refusal != nil {
		return refusal
	}
	var wanted struct {
		XMLName xml.Name `xml:"CompleteMultipartUpload"`
		Parts   []struct {
			PartNumber int
			ETag       string
		} `xml:"Part"`
	}
	if err := xml.Unmarshal(text, &wanted); err != nil || len(wanted.Parts) == 0 {
		return Refuse(http.StatusBadRequest, "MalformedXML", "The XML you provided was not well-formed or did not validate against our published schema")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.uploads[id]
	if u == nil {
		return noSuchUpload()
	}
	if refusal := s.meets(r, objects[key]); refusal != nil {
		return refusal
	}
	made, tags := &object{header: u.header, at: now()}, []byte(nil)
	for i, part := range wanted.Parts {
		body, ok := u.parts[part.PartNumber]
		switch {
		case i > 0 && part.PartNumber <= wanted.Parts[i-1].PartNumber:
			return Refuse(http.StatusBadRequest, "InvalidPartOrder", "The list of parts was not in ascending order.")
		case !ok || part.ETag != tagOf(body):
			return Refuse(http.StatusBadRequest, "InvalidPart", "One or more of the specified parts could not be found.")
		case i < len(wanted.Parts)-1 && len(body) < s.minPart:
			return Refuse(http.StatusBadRequest, "EntityTooSmall", "Your proposed upload is smaller than the minimum allowed size")
		}
		sum := md5.Sum(body)
		tags, made.body = append(tags, sum[:]...), append(made.body, body...)
	}
	made.tag = count(len(wanted.Parts), tags)
	objects[key] = made
	delete(s.uploads, id)
	document(w, struct {
		XMLName   xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ CompleteMultipartUploadResult"`
		Key, ETag string
	}{Key: key, ETag: made.tag})
	return nil
}

// document answers with XML.
func document(w http.ResponseWriter, value any) {
	text, _ := xml.Marshal(value)
	w.Header().Set("Content-Type", "application/xml")
	_, _ = fmt.Fprintf(w, "%s%s", xml.Header, text)
}
